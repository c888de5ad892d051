import { row, rows, type Pool } from '@granary/shared/postgres/pool';
import { sql } from '@granary/shared/postgres/sql';
import { retriedTransaction } from '@granary/shared/postgres/transaction';
import { findApp } from '../catalog/app';
import { bumpCatalogRevision, lockApp } from '../catalog/app-lock';
import { findCollection, type CollectionRef } from '../catalog/collection';
import type { IndexedField } from '../catalog/index-definition';
import { documentsTable, keyColumn } from '../catalog/table-names';
import { JobInterruptedError, type JobContext, type Report } from '../jobs/queue';
import { enqueueRefresh } from './views';
import { rebuildKeys } from '../tables/define-index';

/**
 * The job that an upgrade leaves for each app: documents whose texts have become instants
 * (migrations/0023_instants.sql) still have the keys of texts. Collection by collection, the indexes over such
 * documents are built again, and so are the live views that count them.
 */
export async function renewInstantsJob(
  { pool, stopping }: JobContext,
  payload: Record<string, unknown>,
  report: Report,
): Promise<object> {
  const app = await findApp(pool, String(payload['app_id']));
  const names = await rows<{ name: string }>(
    pool,
    sql`select c.name from collection c where c.app_number = ${app.number} and c.deleted_at is null
          and exists (select from indexed_field f where f.collection_number = c.number and f.is_date) order by c.name`,
  );
  const renewed: string[] = [];
  for (const [index, { name }] of names.entries()) {
    if (stopping.aborted) throw new JobInterruptedError('the service stops');
    const collection = await findCollection(pool, app, name);
    if (!collection) continue;
    const stale: IndexedField[] = [];
    for (const field of collection.fields) if (await isStale(pool, collection, field)) stale.push(field);
    if (stale.length > 0) {
      await renew(pool, collection, stale);
      renewed.push(name);
    }
    await report((index + 1) / names.length, `${index + 1} of ${names.length} collections checked`);
  }
  return { collections: renewed };
}

/** Whether a document has an instant in a field of dates and the key of a text. */
async function isStale(pool: Pool, collection: CollectionRef, field: IndexedField): Promise<boolean> {
  if (!field.isDate) return false;
  const column = keyColumn(field);
  const staleDocument = await row(
    pool,
    sql`select from ${documentsTable(collection)}
        where ${column} >= '\\x20' and ${column} < '\\x30' and instant_of(body::jsonb #>> ${field.path}::text[]) is not null
        limit 1`,
  );
  return staleDocument !== undefined;
}

async function renew(
  pool: Pool,
  { appNumber, appId, name }: CollectionRef,
  stale: readonly IndexedField[],
): Promise<void> {
  await retriedTransaction(pool, async (tx) => {
    await lockApp(tx, appNumber);
    const app = { number: appNumber, appId };
    const collection = await findCollection(tx, app, name);
    if (!collection) return;
    const isOfStale = ({ number }: IndexedField) => stale.some((field) => field.number === number);
    const indexes = collection.indexes.filter(({ status, keys }) => status !== 'failed' && keys.some(isOfStale));
    const same = indexes.map((index) => ({ index, keys: index.keys }));
    await rebuildKeys(tx, collection, same, { isRequired: true });
    const views = await rows<{ number: bigint; name: string }>(
      tx,
      sql`select number, name from view
          where app_number = ${appNumber} and refresh_mode = 'live' and ${name} = any(source_collections)`,
    );
    for (const view of views) await enqueueRefresh(tx, app, view.number, view.name, { isRequired: true });
    await bumpCatalogRevision(tx, appNumber);
  });
}
