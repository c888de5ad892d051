import { execute, row, rows, type Connection } from '@granary/shared/postgres/pool';
import { sql } from '@granary/shared/postgres/sql';
import { ended, newGeneration, withBlobs, withData, type Generation } from './generation';
import { fromRow, generationColumns, saveGeneration, type GenerationRow } from './generation-rows';
import type { Prices } from './prices';

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
async function numberOf(tx: Connection, { appId, collection, at: time }: BlobUsage): Promise<bigint | undefined> {
  const last = await row<Pick<Generation, 'number' | 'beganAt' | 'deletedAt'>>(
    tx,
    sql`select number, began_at as "beganAt", deleted_at as "deletedAt" from collection_generation
        where app_id = ${appId} and collection = ${collection} order by number = 0 desc, number desc limit 1`,
  );
  if (!last || (last.deletedAt && time > last.deletedAt)) return 0n;
  return last.beganAt && time < last.beganAt ? undefined : last.number;
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
  const { appId, at: deletedAt } = change;
  await lockUsage(tx);
  const added = await execute(
    tx,
    sql`insert into deleted_app (app_id, at) values (${appId}, ${deletedAt}) on conflict do nothing`,
  );
  if (added === 0) return;
  const live = await rows<GenerationRow>(
    tx,
    sql`select ${generationColumns} from collection_generation where app_id = ${appId} and deleted_at is null
        order by collection, number for no key update`,
  );
  for (const generationRow of live) await saveGeneration(tx, await ended(fromRow(generationRow), deletedAt, prices));
}

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
  const generationRow = await row<GenerationRow>(
    tx,
    sql`select ${generationColumns} from collection_generation where ${name} and number = ${number} for no key update`,
  );
  await saveGeneration(
    tx,
    await change(generationRow ? fromRow(generationRow) : newGeneration(appId, collection, number)),
  );
}
