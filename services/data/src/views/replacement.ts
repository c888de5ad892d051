import { execute, row, type Connection } from '@granary/shared/postgres/pool';
import { sql } from '@granary/shared/postgres/sql';
import { bumpCatalogRevision } from '../catalog/app-lock';
import type { JobContext } from '../jobs/queue';
import { dropAbandonedViews } from './tables';
import type { ViewRef } from './view';

/**
 * Gives a view the definition and the rows of what replaces it, which is gone then. Under the lock of the app: whoever
 * writes next looks the live views of the collection up again. A build of the old definition is no longer that of the
 * view.
 */
export async function takePlace(tx: Connection, { appNumber, number, replaces }: ViewRef): Promise<void> {
  if (replaces === null) return;
  await execute(
    tx,
    sql`update view v set query_text = n.query_text, source_collections = n.source_collections,
          refresh_mode = n.refresh_mode, variables_text = n.variables_text, read_access = n.read_access,
          read_price_config_text = n.read_price_config_text, keeps_changes = n.keeps_changes, layout_text = n.layout_text, table_number = n.table_number,
          building_table_number = null, row_count = n.row_count, status = n.status, error = n.error,
          refreshed_at = n.refreshed_at
        from view n where n.number = ${number} and v.number = n.replaces`,
  );
  await execute(tx, sql`delete from view where number = ${number}`);
  await bumpCatalogRevision(tx, appNumber);
}

/** Removes what was to replace a view and cannot be filled: the view stays as it is. */
export async function dropReplacement(
  { pool, log }: JobContext,
  { view_number: number }: Record<string, unknown>,
): Promise<undefined> {
  const dropped = sql`delete from view where number = ${BigInt(String(number))} and replaces is not null`;
  const view = await row<{ app_number: bigint }>(pool, sql`${dropped} returning app_number`);
  if (view) await dropAbandonedViews({ pool, log }, view.app_number);
}
