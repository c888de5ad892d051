import { execute, row, rows, type Connection, type Queryable } from '@granary/shared/postgres/pool';
import { sql } from '@granary/shared/postgres/sql';
import {
  bytesOf,
  costUntil,
  ended,
  newGeneration,
  withBlobs,
  withData,
  type Generation,
  type Measure,
} from './generation';
import type { Prices } from './prices';
import { costUnits, currentPrice, periodEndMs, periodMs, roundedUtia, wholeUtia } from './retention';

/** The state of a collection after a change, from `data`: absolute figures. */
export interface DataUsage {
  appId: string;
  collection: string;
  number: bigint;
  bytes: bigint;
  documentCount: bigint;
  retentionDays: number | null;
  at: Date;
}

export async function applyDataUsage(tx: Connection, prices: Prices, change: DataUsage): Promise<void> {
  await edit(tx, change, change.number, (generation) => withData(generation, change, prices));
}

/** The size of the blobs of a collection after a change, from `blobs`: absolute. */
export interface BlobUsage {
  appId: string;
  collection: string;
  /** Undefined in events from before it was published. */
  number?: bigint | undefined;
  bytes: bigint;
  at: Date;
}

export async function applyBlobUsage(tx: Connection, prices: Prices, change: BlobUsage): Promise<void> {
  await lockUsage(tx);
  const number = change.number ?? (await numberOf(tx, change));
  if (number === undefined) return;
  await edit(tx, change, number, (generation) => withBlobs(generation, change, prices));
}

/**
 * The collection that an event without a number is about: the one of that name at its time. Undefined when that is an
 * earlier one, whose blobs are being deleted; 0 for one without an event of `data` so far.
 */
async function numberOf(tx: Connection, { appId, collection, at }: BlobUsage): Promise<bigint | undefined> {
  const last = await row<Pick<Generation, 'number' | 'beganAt' | 'deletedAt'>>(
    tx,
    sql`select number, began_at as "beganAt", deleted_at as "deletedAt" from collection_generation
        where app_id = ${appId} and collection = ${collection} order by number = 0 desc, number desc limit 1`,
  );
  if (!last || (last.deletedAt && at > last.deletedAt)) return 0n;
  return last.beganAt && at < last.beganAt ? undefined : last.number;
}

export async function deleteCollectionUsage(
  tx: Connection,
  prices: Prices,
  change: { appId: string; collection: string; number: bigint; at: Date },
): Promise<void> {
  await edit(tx, change, change.number, (generation) => ended(generation, change.at, prices));
}

/** Everything of the application; what comes about it later is ignored, for its id is never used again. */
export async function deleteAppUsage(
  tx: Connection,
  prices: Prices,
  change: { appId: string; at: Date },
): Promise<void> {
  const { appId, at } = change;
  await lockUsage(tx);
  const added = await execute(
    tx,
    sql`insert into deleted_app (app_id, at) values (${appId}, ${at}) on conflict do nothing`,
  );
  if (added === 0) return;
  const live = await rows<GenerationRow>(
    tx,
    sql`select ${columns} from collection_generation where app_id = ${appId} and deleted_at is null
        order by collection, number for no key update`,
  );
  for (const found of live) await save(tx, await ended(fromRow(found), at, prices));
}

/** What keeping a collection costs; amounts in utia. */
export interface CollectionCost {
  collection: string;
  retentionDays: number | null;
  /** Data and blobs. */
  sizeBytes: bigint;
  documentCount: bigint;
  freeDays: number;
  pricePerGibDay: bigint;
  /** The next 30 days at the present size and price, rounded half up; free days that are left cost nothing. */
  monthlyCost: bigint;
  /** Until now, as far as it makes whole utia; the rest is carried on. */
  accrued: bigint;
  /** The end of the current period of 30 days since the first bytes came; of an empty one as if they came now. */
  nextChargeAt: Date;
}

/** What keeping an application's collections costs, by name. Nothing is changed. Errors as those of `prices`. */
export async function listRetentionCosts(
  db: Queryable,
  prices: Prices,
  appId: string,
  now: Date,
): Promise<CollectionCost[]> {
  // Of a deleted generation without blobs nothing can change any more but by an event.
  const isSettled = sql`deleted_at is not null and blob_bytes = 0`;
  const found = await rows<GenerationRow>(
    db,
    sql`select ${columns} from collection_generation where app_id = ${appId} and not (${isSettled}) order by collection, number`,
  );
  const owed = await rows<{ collection: string; units: string }>(
    db,
    sql`select collection, sum(accrued) as units from collection_generation
        where app_id = ${appId} and ${isSettled} group by collection`,
  );
  const units = new Map(owed.map((each) => [each.collection, BigInt(each.units)]));
  const live = new Map<string, Generation>();
  for (const each of found.map(fromRow)) {
    const { collection } = each;
    units.set(collection, (units.get(collection) ?? 0n) + (await costUntil(each, now, prices)));
    if (!each.deletedAt) live.set(collection, each);
  }
  return Promise.all([...live.values()].map((each) => retentionCost(each, units.get(each.collection)!, prices, now)));
}

/** `accrued`: with what earlier collections of the name have cost. */
async function retentionCost(
  generation: Generation,
  accrued: bigint,
  prices: Prices,
  now: Date,
): Promise<CollectionCost> {
  const price = currentPrice(await prices.list());
  const nowMs = now.getTime();
  const beganMs = generation.beganAt?.getTime() ?? nowMs;
  const sizeBytes = bytesOf(generation);
  const month = { bytes: sizeBytes, fromMs: nowMs, toMs: nowMs + periodMs, beganMs };
  return {
    collection: generation.collection,
    retentionDays: generation.retentionDays,
    sizeBytes,
    documentCount: generation.documentCount,
    freeDays: price.freeDays,
    pricePerGibDay: price.utiaPerGibDay,
    monthlyCost: roundedUtia(costUnits(month, [price])),
    accrued: wholeUtia(accrued),
    nextChargeAt: new Date(periodEndMs(beganMs, nowMs)),
  };
}

interface GenerationRow extends Omit<Generation, 'data' | 'blobs' | 'pendingBlobs' | 'accrued'> {
  dataBytes: bigint;
  dataAt: Date;
  blobBytes: bigint;
  blobAt: Date;
  /** JSON: pairs of bytes and milliseconds since 1970. */
  blobAhead: string;
  accrued: string;
}

const columns = sql`app_id as "appId", collection, number, retention_days as "retentionDays",
  document_count as "documentCount", data_bytes as "dataBytes", data_at as "dataAt", blob_bytes as "blobBytes",
  blob_at as "blobAt", blob_ahead as "blobAhead", began_at as "beganAt", accrued, deleted_at as "deletedAt"`;

function fromRow(found: GenerationRow): Generation {
  const { dataBytes, dataAt, blobBytes, blobAt, blobAhead, accrued, ...same } = found;
  const pending = JSON.parse(blobAhead) as Array<[string, number]>;
  return {
    ...same,
    data: { bytes: dataBytes, at: dataAt },
    blobs: { bytes: blobBytes, at: blobAt },
    pendingBlobs: pending.map(([bytes, atMs]) => ({ bytes: BigInt(bytes), at: new Date(atMs) })),
    accrued: BigInt(accrued),
  };
}

const toPendingText = (measures: readonly Measure[]): string =>
  JSON.stringify(measures.map(({ bytes, at }) => [bytes.toString(), at.getTime()]));

// Any fixed number. A batch of events touches many rows, in the order of the events: the consumers of the two sources
// would deadlock if both were at work at the same time.
const usageLock = 7_265_101;

async function lockUsage(tx: Connection): Promise<void> {
  await execute(tx, sql`select pg_advisory_xact_lock(${usageLock})`);
}

/** Changes a generation, made when it is not there. Nothing happens when the application is gone. */
async function edit(
  tx: Connection,
  { appId, collection }: { appId: string; collection: string },
  number: bigint,
  change: (generation: Generation) => Promise<Generation>,
): Promise<void> {
  await lockUsage(tx);
  const isGone = await row(tx, sql`select from deleted_app where app_id = ${appId}`);
  if (isGone) return;
  const name = sql`app_id = ${appId} and collection = ${collection}`;
  if (number > 0n) {
    // Events of blobs alone belong to the collection that begins next.
    await execute(
      tx,
      sql`update collection_generation set number = ${number} where ${name} and number = 0
          and not exists (select from collection_generation where ${name} and number >= ${number})`,
    );
  }
  const found = await row<GenerationRow>(
    tx,
    sql`select ${columns} from collection_generation where ${name} and number = ${number} for no key update`,
  );
  await save(tx, await change(found ? fromRow(found) : newGeneration(appId, collection, number)));
}

async function save(tx: Connection, generation: Generation): Promise<void> {
  const { appId, collection, number, retentionDays, documentCount, data, blobs, beganAt, deletedAt } = generation;
  await execute(
    tx,
    sql`insert into collection_generation (app_id, collection, number, retention_days, document_count, data_bytes,
          data_at, blob_bytes, blob_at, blob_ahead, began_at, accrued, deleted_at)
        values (${appId}, ${collection}, ${number}, ${retentionDays}, ${documentCount}, ${data.bytes},
          ${data.at}, ${blobs.bytes}, ${blobs.at}, ${toPendingText(generation.pendingBlobs)}, ${beganAt}, ${generation.accrued}, ${deletedAt})
        on conflict (app_id, collection, number) do update set
          retention_days = excluded.retention_days, document_count = excluded.document_count,
          data_bytes = excluded.data_bytes, data_at = excluded.data_at, blob_bytes = excluded.blob_bytes,
          blob_at = excluded.blob_at, blob_ahead = excluded.blob_ahead, began_at = excluded.began_at,
          accrued = excluded.accrued, deleted_at = excluded.deleted_at`,
  );
}
