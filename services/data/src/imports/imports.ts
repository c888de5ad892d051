import { append } from '@granary/shared/bus/outbox';
import { invalid, ServiceError } from '@granary/shared/errors';
import type { CreateImportRequest } from '@granary/shared/gen/granary/data/v1/CreateImportRequest';
import type { DeleteImportRequest } from '@granary/shared/gen/granary/data/v1/DeleteImportRequest';
import type { DeleteImportResponse } from '@granary/shared/gen/granary/data/v1/DeleteImportResponse';
import type { Import } from '@granary/shared/gen/granary/data/v1/Import';
import type { ImportRequest } from '@granary/shared/gen/granary/data/v1/ImportRequest';
import type { ListImportsRequest } from '@granary/shared/gen/granary/data/v1/ListImportsRequest';
import type { ListImportsResponse } from '@granary/shared/gen/granary/data/v1/ListImportsResponse';
import { nameRule } from '@granary/shared/names';
import { databaseTime } from '@granary/shared/postgres/clock';
import { execute, row, rows, type Connection } from '@granary/shared/postgres/pool';
import { sql } from '@granary/shared/postgres/sql';
import { findApp, type App } from '../catalog/app';
import { withAppLockOnce } from '../catalog/app-lock';
import { findCollection } from '../catalog/collection';
import { isName } from '../catalog/names';
import type { PoolContext } from '../postgres/databases';
import { requirePaid } from '../writes/paid-write';
import { parseOptions } from './import-options';
import { findImports, requireImport, toMessage } from './import-state';
import { beginningEvent } from './import-task';
import { removeImports } from './remove-imports';

/** Imports of an app that have not ended, at most. */
const openMax = 100;
/** Imports of an app that are kept, at most: the oldest of those that have ended are forgotten first. */
const keptMax = 1_000;
const listedMax = 100;
/** Time for which an import is kept after its last byte. An Idempotency-Key is kept for 24 hours. */
const keptFor = { resumable: '7 days', oneRequest: '25 hours' };

/**
 * Begins an import of a file. Nothing is stored before the first of its records, not even the collection. Throws
 * VALIDATION_FAILED, PAYMENT_REQUIRED, TOO_MANY_IMPORTS.
 */
export async function createImport({ pool }: PoolContext, request: CreateImportRequest): Promise<Import> {
  const { collection: name, isOneRequest, isPaid } = request;
  if (!isName(name)) throw invalid('The collection is not valid', { collection: [nameRule] });
  const options = parseOptions(request.options.toString());
  return withAppLockOnce<Import>(pool, request, async (tx, app) => {
    // The call was repeated: its first answer was lost.
    const [begun] = await findImports(tx, sql`ticket_id = ${request.importId}`);
    if (begun) return toMessage(begun);
    requirePaid(await findCollection(tx, app, name), isPaid === true, []);
    await makeRoom(tx, app);
    const time = await databaseTime(tx);
    const lifetime = keptFor[isOneRequest === true ? 'oneRequest' : 'resumable'];
    await execute(
      tx,
      sql`insert into import (ticket_id, app_number, collection, options_text, size_bytes, is_one_request, kept_for, expires_at, created_at, updated_at)
          values (${request.importId}, ${app.number}, ${name}, ${JSON.stringify(options)}, ${request.sizeBytes ?? null},
            ${isOneRequest === true}, ${lifetime}::interval, ${time}::timestamptz + ${lifetime}::interval, ${time}, ${time})`,
    );
    const state = await requireImport(tx, app, request.importId);
    await append(tx, [beginningEvent(app.appId, state)]);
    return toMessage(state);
  });
}

/** Those that were begun with their files are not gone on with as a rule, so they make room where there are many. */
async function makeRoom(tx: Connection, app: App): Promise<void> {
  const counts = await row<{ open: bigint; kept: bigint }>(
    tx,
    sql`select count(*) filter (where status = 'open' and not is_one_request) as open, count(*) as kept
        from import where app_number = ${app.number}`,
  );
  if (counts!.open >= BigInt(openMax)) {
    throw new ServiceError(
      'RESOURCE_EXHAUSTED',
      'TOO_MANY_IMPORTS',
      `${openMax} imports of this app have not ended, which is the limit; end or delete some`,
    );
  }
  if (counts!.kept < BigInt(keptMax)) return;
  const removable = sql`app_number = ${app.number} and (status <> 'open' or is_one_request)`;
  const oldest = sql`order by updated_at desc offset ${keptMax - openMax - 1} for update`;
  await removeImports(tx, removable, oldest, 'There were too many imports after it');
}

/** Throws APP_NOT_FOUND, IMPORT_NOT_FOUND. */
export async function getImport({ pool }: PoolContext, { appId, importId }: ImportRequest): Promise<Import> {
  return toMessage(await requireImport(pool, await findApp(pool, appId), importId));
}

/** The newest imports of an app. Throws APP_NOT_FOUND. */
export async function listImports({ pool }: PoolContext, { appId }: ListImportsRequest): Promise<ListImportsResponse> {
  const app = await findApp(pool, appId);
  const newest = sql`order by created_at desc, ticket_id limit ${listedMax}`;
  return { imports: (await findImports(pool, sql`app_number = ${app.number}`, newest)).map(toMessage) };
}

/** The first errors of an import as JSON, in the order of its lines. Throws APP_NOT_FOUND, IMPORT_NOT_FOUND. */
export async function listImportErrors({ pool }: PoolContext, request: ImportRequest): Promise<Buffer> {
  const { ticketId } = await requireImport(pool, await findApp(pool, request.appId), request.importId);
  const errors = await rows<{ error_text: string }>(
    pool,
    sql`select error_text from import_error where ticket_id = ${ticketId} order by number`,
  );
  return Buffer.from(`{"errors":[${errors.map(({ error_text: text }) => text).join(',')}]}`);
}

/** Deletes an import and what is known of it; what it has stored stays. Throws APP_NOT_FOUND, IMPORT_NOT_FOUND. */
export async function deleteImport({ pool }: PoolContext, request: DeleteImportRequest): Promise<DeleteImportResponse> {
  return withAppLockOnce<DeleteImportResponse>(pool, request, async (tx, app) => {
    const { ticketId } = await requireImport(tx, app, request.importId);
    await removeImports(tx, sql`ticket_id = ${ticketId}`, sql`for update`, 'The import was deleted');
    return { replayed: false };
  });
}
