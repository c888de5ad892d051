import { append } from '@granary/shared/bus/outbox';
import type { Logger } from '@granary/shared/logger';
import { databaseTime } from '@granary/shared/postgres/clock';
import { row, rows, type Pool } from '@granary/shared/postgres/pool';
import { sql } from '@granary/shared/postgres/sql';
import { retriedTransaction } from '@granary/shared/postgres/transaction';
import { findCollection } from '../catalog/collection';
import type { App } from '../catalog/app';
import { lockApp } from '../catalog/app-lock';
import { usageColumns, usageEvent, type UsageRow } from './event';
import { documentsTable, historyTable } from '../catalog/table-names';

/**
 * Documents that one transaction purges: it holds the lock of the app, and its event of at most 64 KiB names them (an
 * id has up to 256 characters, each up to 6 bytes of JSON).
 */
const purgeBatchDocuments = 40;
/** Batches of one collection in one round, so that no collection starves the others. */
const purgeBatchesMax = 250;

/**
 * Removes the documents that are past the retention of their collection, with their history. The commits that stored
 * them stay: the chain can still be checked, only the texts are gone. Blobs are deleted by the event. `stopping` ends it
 * between two transactions. The lock of the app serializes two replicas.
 */
export async function purgeExpired(pool: Pool, log: Logger, stopping?: AbortSignal): Promise<void> {
  const collections = await rows<{ app_number: bigint; app_id: string; name: string }>(
    pool,
    sql`select c.app_number, a.app_id, c.name from collection c join application a on a.number = c.app_number
        where c.retention_days is not null and c.deleted_at is null and a.deleted_at is null and c.row_count > 0`,
  );
  for (const { app_number: number, app_id: appId, name } of collections) {
    try {
      for (let batch = 0; batch < purgeBatchesMax && !stopping?.aborted; batch++) {
        if ((await purgeBatch(pool, { number, appId }, name)) < purgeBatchDocuments) break;
      }
    } catch (error) {
      // A failure, of a collection that was just deleted for example, must not prevent the purge of the others.
      log.warn({ err: error, app: appId, collection: name }, 'a collection was not purged');
    }
  }
}

/** Gives how many documents were removed. */
async function purgeBatch(pool: Pool, app: App, collection: string): Promise<number> {
  return retriedTransaction(pool, async (tx) => {
    await lockApp(tx, app.number);
    const found = await findCollection(tx, app, collection);
    if (!found || found.retentionDays === null) return 0;
    const at = await databaseTime(tx);
    const purged = await row<UsageRow & { ids: string[] }>(
      tx,
      sql`with gone as (
            delete from ${documentsTable(found)} where id = any(array(
              select id from ${documentsTable(found)}
              where updated_at < ${at}::timestamptz - ${found.retentionDays} * interval '1 day' limit ${purgeBatchDocuments}))
            returning id, deleted, octet_length(body) as bytes
          ), history as (
            delete from ${historyTable(found)} where id in (select id from gone) returning octet_length(body) as bytes
          )
          update collection set
            row_count = row_count - g.documents, deleted_count = deleted_count - g.deleted, version_count = version_count - g.versions,
            size_bytes = size_bytes - g.bytes, usage_sequence = usage_sequence + 2
          from (select (select count(*) from gone) as documents, (select count(*) from gone where deleted) as deleted,
                  (select count(*) from history) as versions,
                  (select coalesce(sum(bytes), 0) from gone) + (select coalesce(sum(bytes), 0) from history) as bytes,
                  array(select id from gone) as ids) g
          where number = ${found.number} and g.documents > 0
          returning ${usageColumns}, g.ids`,
    );
    if (!purged) return 0;
    const usage = usageEvent(app.appId, collection, purged, at);
    await append(tx, [
      {
        ...usage,
        aggregateSequence: usage.aggregateSequence - 1n,
        type: 'documents.purged',
        payload: { app_id: app.appId, collection, ids: purged.ids, at: at.toISOString() },
      },
      usage,
    ]);
    return purged.ids.length;
  });
}
