import { rows, type Connection } from '@granary/shared/postgres/pool';
import { sql } from '@granary/shared/postgres/sql';
import type { App } from '../catalog/app';
import { enqueueRefresh } from './views';

/**
 * Takes the rows away from all views of a collection, and queues their refresh: they may hold texts that must not be read
 * any more. A refresh that is running is no longer that of its view, so its rows are dropped, and it starts again. The app
 * must be locked; afterwards `dropAbandonedViews` drops the tables. Returns how many views there were.
 */
export async function forgetViewRows(tx: Connection, app: App, collection: string): Promise<number> {
  const views = await rows<{ number: bigint; name: string }>(
    tx,
    sql`update view set table_number = null, building_table_number = null, row_count = 0, status = 'building', refreshed_at = null
        where app_number = ${app.number} and ${collection} = any(source_collections) returning number, name`,
  );
  for (const { number, name } of views) await enqueueRefresh(tx, app, number, name, { isRequired: true });
  return views.length;
}
