import { rows, type Connection } from '@granary/shared/postgres/pool';
import { sql } from '@granary/shared/postgres/sql';
import type { App } from '../catalog/app';
import { enqueueRefresh } from './views';

/**
 * Takes the rows away from all lazy views of a collection, and queues their refresh: they may hold texts that must not
 * be read any more. A build that is running, of a live view too, is no longer that of its view, so its rows are
 * dropped, and it starts again. The rows of a live view follow the documents. The app must be locked; afterwards
 * `dropAbandonedViews` drops the tables. Returns how many views there were.
 */
export async function forgetViewRows(tx: Connection, app: App, collection: string): Promise<number> {
  const ofCollection = sql`app_number = ${app.number} and ${collection} = any(source_collections)`;
  const views = await rows<{ number: bigint; name: string }>(
    tx,
    sql`with lazy as (
          update view set table_number = null, building_table_number = null, row_count = 0, status = 'building', refreshed_at = null
          where ${ofCollection} and refresh_mode = 'lazy' returning number, name, replaces
        ), live as (
          update view set building_table_number = null
          where ${ofCollection} and refresh_mode = 'live' and building_table_number is not null returning number, name, replaces
        )
        -- The job that builds a replacement begins again by itself.
        select number, name from (select * from lazy union all select * from live) v where replaces is null`,
  );
  for (const { number, name } of views) await enqueueRefresh(tx, app, number, name, { isRequired: true });
  return views.length;
}
