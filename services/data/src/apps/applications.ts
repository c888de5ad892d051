import { randomBytes } from 'node:crypto';
import { append } from '@granary/shared/bus/outbox';
import { conflict, invalid, notFound } from '@granary/shared/errors';
import type { AppStats } from '@granary/shared/gen/granary/data/v1/AppStats';
import type { Application } from '@granary/shared/gen/granary/data/v1/Application';
import type { CreateApplicationRequest } from '@granary/shared/gen/granary/data/v1/CreateApplicationRequest';
import type { CreateApplicationResponse } from '@granary/shared/gen/granary/data/v1/CreateApplicationResponse';
import type { DeleteApplicationRequest } from '@granary/shared/gen/granary/data/v1/DeleteApplicationRequest';
import type { DeleteApplicationResponse } from '@granary/shared/gen/granary/data/v1/DeleteApplicationResponse';
import type { ListApplicationsResponse } from '@granary/shared/gen/granary/data/v1/ListApplicationsResponse';
import type { UpdateApplicationRequest } from '@granary/shared/gen/granary/data/v1/UpdateApplicationRequest';
import type { UpdateApplicationResponse } from '@granary/shared/gen/granary/data/v1/UpdateApplicationResponse';
import { message } from '@granary/shared/rpc/types';
import { databaseTime } from '@granary/shared/postgres/clock';
import { execute, row, rows, type Connection, type Queryable } from '@granary/shared/postgres/pool';
import { named, sql } from '@granary/shared/postgres/sql';
import { violatedConstraint } from '@granary/shared/postgres/errors';
import { retriedTransaction } from '@granary/shared/postgres/transaction';
import { firstKeyName, issueKey } from './app-keys';
import { createCommitsTable } from '../chain/commit-log';
import { genesisHash } from '../chain/hash-chain';
import { enqueueJob } from '../jobs/queue';
import { listingBytesMax, listingRowsMax } from '@granary/shared/postgres/listing';
import { ALREADY_EXISTS, isAppId } from '../catalog/names';
import { APP_NOT_FOUND, findApp } from '../catalog/app';
import { bumpCatalogRevision, withAppLockOnce } from '../catalog/app-lock';
import { toIdempotencyKey } from '@granary/shared/idempotency/key';
import { once } from '@granary/shared/idempotency/once';
import type { PoolContext } from '../postgres/databases';
import type { GetApplicationRequest } from '@granary/shared/gen/granary/data/v1/GetApplicationRequest';
import type { AppRequest } from '@granary/shared/gen/granary/data/v1/AppRequest';
import type { ListApplicationsRequest } from '@granary/shared/gen/granary/data/v1/ListApplicationsRequest';

interface ApplicationRow {
  number: bigint;
  app_id: string;
  name: string;
  description: string;
  owner_address: string | null;
  created_at: Date;
  updated_at: Date;
  payment_networks: string[] | null;
  height: bigint;
}

const columns = sql`a.number, a.app_id, a.name, a.description, a.owner_address, a.created_at, a.updated_at,
  a.payment_networks, h.height`;

function toApplication(application: ApplicationRow): Application {
  return message<Application>({
    appId: application.app_id,
    number: application.number.toString(),
    name: application.name,
    description: application.description,
    ownerAddress: application.owner_address ?? undefined,
    createdAt: application.created_at.toISOString(),
    updatedAt: application.updated_at.toISOString(),
    height: application.height.toString(),
    paymentNetworks: application.payment_networks ?? [],
  });
}

/**
 * Creates an application with its first key (Admin, Read and Write). A repeated Idempotency-Key returns the same
 * application, without the secret. Throws ALREADY_EXISTS for an app_id that is or was in use.
 */
export async function createApplication(
  { pool }: PoolContext,
  request: CreateApplicationRequest,
): Promise<CreateApplicationResponse> {
  if (request.appId !== undefined && (!isAppId(request.appId) || request.appId.startsWith('app_'))) {
    throw invalid('The app_id is not valid', {
      app_id: ['must be 1 to 63 of A-Z a-z 0-9 _ -, begin with a letter or digit, and not start with app_'],
    });
  }
  const key = toIdempotencyKey(request.idempotency);
  const create = async (tx: Connection): Promise<CreateApplicationResponse> => {
    const appId = request.appId ?? `granary-${randomBytes(8).toString('hex')}`;
    const app = await insertApplication(tx, appId, request);
    const issued = await issueKey(tx, app, {
      name: firstKeyName,
      permissions: ['Admin', 'Read', 'Write'],
      payLimits: undefined,
    });
    return { application: await findApplication(tx, appId), key: issued };
  };
  const withoutSecret = (made: CreateApplicationResponse) => ({ ...made, key: { ...made.key!, secret: '' } });
  return retriedTransaction(pool, (tx) => once(tx, key, () => create(tx), withoutSecret));
}

async function insertApplication(tx: Connection, appId: string, request: CreateApplicationRequest) {
  const time = await databaseTime(tx);
  const inserted = await row<{ number: bigint }>(
    tx,
    sql`insert into application (app_id, name, description, owner_address, created_at, updated_at)
        values (${appId}, ${request.name}, ${request.description}, ${request.ownerAddress ?? null}, ${time}, ${time}) returning number`,
  ).catch((error: unknown) => {
    if (violatedConstraint(error) !== 'application_app_id_key') throw error;
    throw conflict(ALREADY_EXISTS, `An app with the id ${appId} exists already or existed once`);
  });
  const { number } = inserted!;
  await execute(tx, sql`insert into head (app_number, hash) values (${number}, ${genesisHash})`);
  await execute(tx, sql`create schema ${named('a_', number)}`);
  await createCommitsTable(tx, number);
  await append(tx, [
    {
      topic: 'usage',
      key: appId,
      aggregateId: `app/${number}`,
      aggregateSequence: 1n,
      type: 'app.created',
      payload: { app_id: appId, at: time.toISOString() },
    },
  ]);
  return { number, appId };
}

/** Throws APP_NOT_FOUND. */
export function getApplication({ pool }: PoolContext, { appId }: GetApplicationRequest): Promise<Application> {
  return findApplication(pool, appId);
}

async function findApplication(db: Queryable, appId: string): Promise<Application> {
  const application = await row<ApplicationRow>(
    db,
    sql`select ${columns} from application a join head h on h.app_number = a.number
        where a.app_id = ${appId} and a.deleted_at is null`,
  );
  if (!application) throw notFound(APP_NOT_FOUND, `There is no app ${appId}`);
  return toApplication(application);
}

/** Sums over the collections of an app. Throws APP_NOT_FOUND. */
export async function getAppStats({ pool }: PoolContext, { appId }: AppRequest): Promise<AppStats> {
  const app = await findApp(pool, appId);
  const stats = await row<{ collections: bigint; documents: bigint; bytes: bigint; height: bigint } & IndexTotals>(
    pool,
    sql`select count(c.number) as collections, coalesce(sum(c.row_count - c.deleted_count), 0)::int8 as documents,
          coalesce(sum(c.size_bytes), 0)::int8 as bytes, h.height,
          (select count(*) from document_index i join collection o on o.number = i.collection_number
            where i.app_number = h.app_number and o.deleted_at is null) as indexes,
          (select coalesce(sum(p.relpages::int8), 0)::int8 * current_setting('block_size')::int8
            from document_index i cross join unnest(array['i_', 'n_', 'q_']) prefix
            join pg_class p on p.relname = (prefix || i.number)::name
              and p.relnamespace = to_regnamespace('a_' || h.app_number)
            where i.app_number = h.app_number) as "indexBytes"
        from head h left join collection c on c.app_number = h.app_number and c.deleted_at is null
        where h.app_number = ${app.number} group by h.app_number, h.height`,
  );
  if (!stats) throw notFound(APP_NOT_FOUND, `There is no app ${appId}`);
  return {
    collectionCount: stats.collections.toString(),
    documentCount: stats.documents.toString(),
    sizeBytes: stats.bytes.toString(),
    height: stats.height.toString(),
    indexCount: stats.indexes.toString(),
    indexBytes: stats.indexBytes.toString(),
  };
}

interface IndexTotals {
  indexes: bigint;
  /** The size of the indexes as of the last VACUUM, ANALYZE or build of each. */
  indexBytes: bigint;
}

/** The approximate bytes of the JSON of an application, besides its name and description. */
const applicationBytes = 2_048;

/** Returns a page of the applications, which is shorter than requested where its JSON would be too large. */
export async function listApplications(
  { pool }: PoolContext,
  request: ListApplicationsRequest,
): Promise<ListApplicationsResponse> {
  const limit = Math.min(Math.max(request.limit, 1), listingRowsMax);
  const offset = Math.max(request.offset, 0);
  const [applications, total] = await Promise.all([
    rows<ApplicationRow>(
      pool,
      sql`select * from (
            select listed.*, row_number() over listed as place, sum(6 * (octet_length(name) + octet_length(description))
              + ${applicationBytes}) over (listed rows unbounded preceding) as bytes_so_far
            from (select ${columns} from application a join head h on h.app_number = a.number
                  where a.deleted_at is null order by a.number limit ${limit} offset ${offset}) listed
            window listed as (order by number)) page
          where bytes_so_far <= ${listingBytesMax} or place = 1 order by number`,
    ),
    row<{ count: bigint }>(pool, sql`select count(*) from application where deleted_at is null`),
  ]);
  return { applications: applications.map(toApplication), total: total!.count.toString() };
}

/** Networks of an app, at most: an operator cannot offer more. */
const networksMax = 8;

/** Changes on which networks an app takes x402 payments. Throws APP_NOT_FOUND, VALIDATION_FAILED. */
export async function updateApplication(
  { pool }: PoolContext,
  request: UpdateApplicationRequest,
): Promise<UpdateApplicationResponse> {
  const { appId, paymentNetworks } = request;
  if (paymentNetworks.length > networksMax) {
    throw invalid('The networks are not valid', { payment_networks: [`may hold at most ${networksMax} networks`] });
  }
  const networks = paymentNetworks.length === 0 ? null : paymentNetworks;
  return withAppLockOnce<UpdateApplicationResponse>(pool, request, async (tx, app) => {
    const time = await databaseTime(tx);
    await execute(
      tx,
      sql`update application set payment_networks = ${networks}::text[], updated_at = ${time} where number = ${app.number}`,
    );
    // The skills document names them.
    await bumpCatalogRevision(tx, app.number);
    return { application: await findApplication(tx, appId) };
  });
}

/**
 * Marks an application as deleted at once, with its keys; tables are dropped by a job, other services react to the
 * event.
 */
export async function deleteApplication(
  { pool }: PoolContext,
  request: DeleteApplicationRequest,
): Promise<DeleteApplicationResponse> {
  const { appId } = request;
  return withAppLockOnce<DeleteApplicationResponse>(pool, request, async (tx, app) => {
    const time = await databaseTime(tx);
    await execute(tx, sql`update application set deleted_at = ${time} where number = ${app.number}`);
    // A transaction that waits for the lock then finds no row.
    await execute(tx, sql`delete from head where app_number = ${app.number}`);
    await execute(
      tx,
      sql`update app_key set revoked_at = ${time} where app_number = ${app.number} and revoked_at is null`,
    );
    await append(tx, [
      {
        topic: 'usage',
        key: appId,
        aggregateId: `app/${app.number}`,
        aggregateSequence: 2n,
        type: 'app.deleted',
        payload: { app_id: appId, at: time.toISOString() },
      },
    ]);
    await enqueueJob(tx, app, 'app.drop', { app_number: app.number.toString() });
    return {};
  });
}
