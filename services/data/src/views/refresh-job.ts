import { sql } from '@granary/shared/postgres/sql';
import { execute, row, type Connection } from '@granary/shared/postgres/pool';
import { notFound, ServiceError } from '@granary/shared/errors';
import { retriedTransaction } from '@granary/shared/postgres/transaction';
import { VIEW_NOT_FOUND, viewColumns, viewsWithApp, type ViewRef } from './view';
import { COLLECTION_NOT_FOUND, findCollection } from '../catalog/collection';
import { parseViewQuery } from '../query/language/view-query';
import { dropAbandonedViews, nextTableNumber } from './tables';
import { resolveReferences } from '../query/execute/references';
import { readJsonText } from '../query/language/paging';
import type { JobContext, Report } from '../jobs/queue';
import { fillView } from './fill';
import { viewTable } from '../catalog/table-names';

/** A rebuild that takes longer has failed. */
const rebuildTimeoutMs = 600_000;
/** Renews the lease of the job, which is longer. */
const heartbeatMs = 15_000;

/**
 * The job of a refresh: fills a new table from one snapshot, which then replaces the old one. Until then readers get the
 * old rows.
 */
export async function refreshViewJob(
  context: JobContext,
  payload: Record<string, unknown>,
  report: Report,
): Promise<object> {
  const { pool } = context;
  const number = BigInt(String(payload['view_number']));
  const heartbeat = setInterval(() => void report(0.5, 'still filling').catch(() => undefined), heartbeatMs);
  try {
    const { appNumber, rowCount } = await retriedTransaction(pool, (tx) => rebuild(tx, number), {
      isolation: 'repeatable read',
      statementTimeoutMs: rebuildTimeoutMs,
    });
    await dropAbandonedViews(context, appNumber);
    return { view_name: payload['view_name'], row_count: Number(rowCount) };
  } catch (error) {
    const text = error instanceof ServiceError ? error.message : 'The view could not be filled';
    await execute(pool, sql`update view set status = 'failed', error = ${text} where number = ${number}`);
    throw error;
  } finally {
    clearInterval(heartbeat);
  }
}

async function rebuild(tx: Connection, number: bigint): Promise<{ appNumber: bigint; rowCount: bigint }> {
  const view = await row<ViewRef>(tx, sql`select ${viewColumns} from ${viewsWithApp} where v.number = ${number}`);
  if (!view) throw notFound(VIEW_NOT_FOUND, 'The view was deleted');
  const { appNumber, appId } = view;
  const query = parseViewQuery(readJsonText(Buffer.from(view.queryText), 'query'), view.sourceCollections);
  const collection = await findCollection(tx, { number: appNumber, appId }, query.base);
  if (!collection) throw notFound(COLLECTION_NOT_FOUND, `There is no collection ${query.base}`);
  const find = await resolveReferences(tx, appId, query.find);
  const tableNumber = await nextTableNumber(tx);
  const rowCount = await fillView(tx, viewTable(appNumber, tableNumber), collection, { ...query, find });
  await execute(
    tx,
    sql`update view set table_number = ${tableNumber}, row_count = ${rowCount}, status = 'ready', error = null,
          refreshed_at = clock_timestamp() where number = ${number}`,
  );
  return { appNumber, rowCount };
}
