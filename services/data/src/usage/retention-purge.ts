import type { Logger } from '@granary/shared/logger';
import { databaseTime } from '@granary/shared/postgres/clock';
import { execute, row, rows, type Connection, type Pool } from '@granary/shared/postgres/pool';
import { sql, trusted, type Sql } from '@granary/shared/postgres/sql';
import { retriedTransaction, transaction } from '@granary/shared/postgres/transaction';
import { setTimeout as delay } from 'node:timers/promises';
import { findCollection, type CollectionRef } from '../catalog/collection';
import { findApp } from '../catalog/app';
import { lockApp } from '../catalog/app-lock';
import { documentsTable } from '../catalog/table-names';
import { nothingRemoved, removeDocuments, withoutDerivedOnFailure, type DerivedRemovals } from './document-removal';

interface PurgeContext {
  pool: Pool;
  log: Logger;
  derived: DerivedRemovals;
}

/** Documents that one transaction purges: it holds the lock of the app. */
const purgeBatchDocuments = 500;
/** Older versions that one transaction removes, at most. */
const purgeBatchVersions = 2_000;
/** Documents of one collection in one round, so that no collection starves the others. */
const purgeRoundDocuments = 10_000;
/** After a transaction the lock of the app is left to others for this many times as long as it was held. */
const cooldownFactor = 40;
const cooldownMaxMs = 2_000;
/** How long a search for what is due may take: once in a while it reads pages that are not summarised yet. */
const searchTimeoutMs = 60_000;

/**
 * Removes the documents that are past the retention of their collection, with their history. The commits that stored
 * them stay with the hashes of the texts: the chain can still be checked. Blobs are deleted by the event. What is due
 * is searched without a lock and without a transaction id, by a BRIN index; then short transactions remove it, each
 * followed by a cooldown. `stopping` ends it between two transactions. The lock of the app serializes two replicas.
 */
export async function purgeExpired(context: PurgeContext, stopping?: AbortSignal): Promise<void> {
  const { pool, log } = context;
  const collections = await rows<{ app_id: string; name: string }>(
    pool,
    sql`select a.app_id, c.name from collection c join application a on a.number = c.app_number
        where c.retention_days is not null and c.deleted_at is null and a.deleted_at is null and c.row_count > 0`,
  );
  for (const { app_id: appId, name } of collections) {
    if (stopping?.aborted) return;
    try {
      await purgeCollection(context, appId, name, stopping);
    } catch (error) {
      // A failure, of a collection that was just deleted for example, must not prevent the purge of the others.
      log.warn({ err: error, app: appId, collection: name }, 'a collection was not purged');
    }
  }
}

async function purgeCollection(
  context: PurgeContext,
  appId: string,
  name: string,
  stopping?: AbortSignal,
): Promise<void> {
  const { pool } = context;
  const collection = await findCollection(pool, await findApp(pool, appId), name);
  if (!collection) return;
  const due = await findExpired(pool, collection);
  for (let from = 0; from < due.length && !stopping?.aborted;) {
    const { isComplete, lockedAtMs } = await purgeBatch(
      context,
      collection,
      due.slice(from, from + purgeBatchDocuments),
    );
    if (isComplete) from += purgeBatchDocuments;
    if (from >= due.length) return;
    const cooldownMs = Math.min((performance.now() - lockedAtMs) * cooldownFactor, cooldownMaxMs);
    await delay(cooldownMs, undefined, { signal: stopping }).catch(() => undefined);
  }
}

/**
 * Whether a document is past the retention as it is when the statement runs. Without a retention it is null, which
 * counts as false.
 */
const isExpired = ({ number }: CollectionRef, at: Date): Sql =>
  sql`updated_at < ${at}::timestamptz - interval '1 day' * (
        select retention_days from collection where number = ${number} and deleted_at is null)`;

/** The ids of documents that are due, of a round at most. */
function findExpired(pool: Pool, collection: CollectionRef): Promise<string[]> {
  const find = async (tx: Connection) => {
    const time = await databaseTime(tx);
    // Whatever the statistics say: only the BRIN index knows where old documents are.
    await execute(tx, trusted('set local enable_seqscan = off'));
    await execute(tx, trusted('set local enable_indexscan = off'));
    const documents = await rows<{ id: string }>(
      tx,
      sql`select id from ${documentsTable(collection)} where ${isExpired(collection, time)} limit ${purgeRoundDocuments}`,
    );
    return documents.map(({ id }) => id);
  };
  return transaction(pool, find, { readOnly: true, statementTimeoutMs: searchTimeoutMs });
}

interface PurgedBatch {
  /** False where versions of the documents are left. */
  isComplete: boolean;
  /** The time at which the batch got the lock of the app. */
  lockedAtMs: number;
}

/** Removes the documents that are still due, in few round trips, because others wait for the lock. */
async function purgeBatch(
  { pool, derived }: PurgeContext,
  { appId, appNumber, name }: CollectionRef,
  ids: readonly string[],
): Promise<PurgedBatch> {
  const purge = (without: boolean) =>
    retriedTransaction(pool, async (tx) => {
      const time = await databaseTime(tx);
      await lockApp(tx, appNumber);
      const lockedAtMs = performance.now();
      // The catalog is read under the lock, because it decides which rows are derived from the documents.
      const collection = await findCollection(tx, { number: appNumber, appId }, name);
      if (!collection || (await isBeingDerived(tx, collection))) return { isComplete: true, lockedAtMs };
      if (without) await derived.abandon(tx, collection);
      const only = isExpired(collection, time);
      const removal = without ? nothingRemoved : derived.removalFrom(collection);
      const options = { only, historyMax: purgeBatchVersions, at: time, derived: removal };
      const { isComplete } = await removeDocuments(tx, collection, ids, options);
      return { isComplete, lockedAtMs };
    });
  return withoutDerivedOnFailure(purge);
}

/** While a live view is built, the versions that it is built from stay. */
async function isBeingDerived(tx: Connection, { appNumber, name }: CollectionRef): Promise<boolean> {
  const view = await row(
    tx,
    sql`select from view where app_number = ${appNumber} and refresh_mode = 'live' and building_table_number is not null
          and ${name} = any(source_collections)`,
  );
  return view !== undefined;
}
