import { execute, row, rows, type Connection, type Queryable } from '@granary/shared/postgres/pool';
import { sql } from '@granary/shared/postgres/sql';
import type { Prices } from './prices';
import { costUnits, currentPrice, periodEndMs, periodMs, roundedUtia, wholeUtia } from './retention';

/** What a service holds of a collection since a moment. */
interface Measure {
  bytes: bigint;
  at: Date;
}

/** What is known of a collection by its name; one that was deleted stays, for what it has cost is still owed. */
interface CollectionUsage {
  appId: string;
  collection: string;
  /** The data service's number of the collection; 0 as long as only blobs has spoken of it. */
  number: bigint;
  retentionDays: number | null;
  documentCount: bigint;
  data: Measure;
  blobs: Measure;
  beganAt: Date | null;
  /** Up to `data.at` and `blobs.at`, in units, see retention.ts. */
  accrued: bigint;
  deletedAt: Date | null;
}

/** What the data service says of a collection after a change: absolute figures. */
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
  const { number, at, bytes, documentCount, retentionDays } = change;
  await edit(tx, change, async (usage) => {
    if (isPast(usage, number)) return undefined;
    let live = usage;
    // A new collection of the same name; what the old one has cost is kept.
    if (number > usage.number && usage.number > 0n) live = revived(await closed(live, at, prices));
    const settled = { ...live, number, documentCount, retentionDays };
    return measured(settled, 'data', { bytes, at }, prices);
  });
}

/** What the blobs service says of the blobs of a collection after a change: absolute. */
export interface BlobUsage {
  appId: string;
  collection: string;
  bytes: bigint;
  at: Date;
}

export async function applyBlobUsage(tx: Connection, prices: Prices, change: BlobUsage): Promise<void> {
  const { at, bytes } = change;
  await edit(tx, change, async (usage) => {
    if (!usage.deletedAt) return measured(usage, 'blobs', { bytes, at }, prices);
    // Either the blobs that are being deleted, or those of a new collection that the data service has yet to tell of.
    return at > usage.deletedAt ? { ...usage, blobs: { bytes, at } } : undefined;
  });
}

export async function deleteCollectionUsage(
  tx: Connection,
  prices: Prices,
  change: { appId: string; collection: string; number: bigint; at: Date },
): Promise<void> {
  await edit(tx, change, async (usage) => {
    if (isPast(usage, change.number)) return undefined;
    return { ...(await closed(usage, change.at, prices)), number: change.number };
  });
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
  const live = await rows<UsageRow>(
    tx,
    sql`select ${columns} from collection_usage where app_id = ${appId} and deleted_at is null
        order by collection for no key update`,
  );
  for (const found of live) await save(tx, await closed(fromRow(found), at, prices));
}

/** Of the current collection or one before it: the event was overtaken by the deletion. */
function isPast(usage: CollectionUsage, number: bigint): boolean {
  return number < usage.number || (usage.deletedAt !== null && number <= usage.number);
}

/** Settles what a measure has cost until the next one takes its place. */
async function measured(
  usage: CollectionUsage,
  source: 'data' | 'blobs',
  next: Measure,
  prices: Prices,
): Promise<CollectionUsage> {
  const accrued = usage.accrued + (await costUntil(usage, usage[source], next.at, prices));
  const beganAt = next.bytes > 0n && (!usage.beganAt || next.at < usage.beganAt) ? next.at : usage.beganAt;
  return { ...usage, accrued, beganAt, [source]: { bytes: next.bytes, at: later(usage[source].at, next.at) } };
}

async function closed(usage: CollectionUsage, at: Date, prices: Prices): Promise<CollectionUsage> {
  if (usage.deletedAt) return usage;
  const settled = await measured(usage, 'data', { bytes: 0n, at }, prices);
  // Blobs that came after the deletion belong to the next collection of that name.
  const withBlobs = usage.blobs.at > at ? settled : await measured(settled, 'blobs', { bytes: 0n, at }, prices);
  return { ...withBlobs, documentCount: 0n, beganAt: null, deletedAt: at };
}

/**
 * A new collection begins with its own data, of which each upload brings some: the blobs that are known now may be
 * the last ones of the collection before it, on their way out.
 */
function revived(usage: CollectionUsage): CollectionUsage {
  return { ...usage, deletedAt: null, beganAt: null };
}

async function costUntil(usage: CollectionUsage, { bytes, at }: Measure, until: Date, prices: Prices): Promise<bigint> {
  if (bytes === 0n || !usage.beganAt || until <= at) return 0n;
  const kept = { bytes, fromMs: at.getTime(), toMs: until.getTime(), beganMs: usage.beganAt.getTime() };
  return costUnits(kept, await prices.list());
}

const later = (a: Date, b: Date): Date => (a > b ? a : b);

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
  const found = await rows<UsageRow>(
    db,
    sql`select ${columns} from collection_usage where app_id = ${appId} and deleted_at is null order by collection`,
  );
  return Promise.all(found.map((each) => retentionCost(fromRow(each), prices, now)));
}

async function retentionCost(usage: CollectionUsage, prices: Prices, now: Date): Promise<CollectionCost> {
  const list = await prices.list();
  const price = currentPrice(list);
  const nowMs = now.getTime();
  const beganMs = usage.beganAt?.getTime() ?? nowMs;
  const sizeBytes = usage.data.bytes + usage.blobs.bytes;
  const month = { bytes: sizeBytes, fromMs: nowMs, toMs: nowMs + periodMs, beganMs };
  const [dataUnits, blobUnits] = await Promise.all(
    [usage.data, usage.blobs].map((measure) => costUntil(usage, measure, now, prices)),
  );
  return {
    collection: usage.collection,
    retentionDays: usage.retentionDays,
    sizeBytes,
    documentCount: usage.documentCount,
    freeDays: price.freeDays,
    pricePerGibDay: price.utiaPerGibDay,
    monthlyCost: roundedUtia(costUnits(month, [price])),
    accrued: wholeUtia(usage.accrued + dataUnits! + blobUnits!),
    nextChargeAt: new Date(periodEndMs(beganMs, nowMs)),
  };
}

interface UsageRow {
  appId: string;
  collection: string;
  number: bigint;
  retentionDays: number | null;
  documentCount: bigint;
  dataBytes: bigint;
  dataAt: Date;
  blobBytes: bigint;
  blobAt: Date;
  beganAt: Date | null;
  accrued: string;
  deletedAt: Date | null;
}

const columns = sql`app_id as "appId", collection, number, retention_days as "retentionDays",
  document_count as "documentCount", data_bytes as "dataBytes", data_at as "dataAt", blob_bytes as "blobBytes",
  blob_at as "blobAt", began_at as "beganAt", accrued, deleted_at as "deletedAt"`;

function fromRow({ dataBytes, dataAt, blobBytes, blobAt, accrued, ...same }: UsageRow): CollectionUsage {
  return {
    ...same,
    data: { bytes: dataBytes, at: dataAt },
    blobs: { bytes: blobBytes, at: blobAt },
    accrued: BigInt(accrued),
  };
}

// Any fixed number. A batch of events touches many rows, in the order of the events: the consumers of the two sources
// would deadlock if both were at work at the same time.
const usageLock = 7_265_101;

async function lockUsage(tx: Connection): Promise<void> {
  await execute(tx, sql`select pg_advisory_xact_lock(${usageLock})`);
}

/**
 * Changes a collection's row, made when it is not there. Nothing happens when `change` answers undefined or the
 * application is gone.
 */
async function edit(
  tx: Connection,
  { appId, collection, at }: { appId: string; collection: string; at: Date },
  change: (usage: CollectionUsage) => Promise<CollectionUsage | undefined>,
): Promise<void> {
  await lockUsage(tx);
  await execute(
    tx,
    sql`insert into collection_usage (app_id, collection, data_at, blob_at)
        select ${appId}, ${collection}, ${at}::timestamptz, ${at}::timestamptz
        where not exists (select from deleted_app where app_id = ${appId}) on conflict do nothing`,
  );
  const found = await row<UsageRow>(
    tx,
    sql`select ${columns} from collection_usage where app_id = ${appId} and collection = ${collection}
          and not exists (select from deleted_app where app_id = ${appId}) for no key update`,
  );
  const usage = found && (await change(fromRow(found)));
  if (usage) await save(tx, usage);
}

async function save(tx: Connection, usage: CollectionUsage): Promise<void> {
  await execute(
    tx,
    sql`update collection_usage
        set number = ${usage.number}, retention_days = ${usage.retentionDays}, document_count = ${usage.documentCount},
            data_bytes = ${usage.data.bytes}, data_at = ${usage.data.at}, blob_bytes = ${usage.blobs.bytes},
            blob_at = ${usage.blobs.at}, began_at = ${usage.beganAt}, accrued = ${usage.accrued}, deleted_at = ${usage.deletedAt}
        where app_id = ${usage.appId} and collection = ${usage.collection}`,
  );
}
