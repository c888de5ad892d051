import type { Logger } from '@granary/shared/logger';
import { execute, row, rows, type Connection, type Pool } from '@granary/shared/postgres/pool';
import { sql } from '@granary/shared/postgres/sql';
import { transaction } from '@granary/shared/postgres/transaction';
import { viewLogTable, viewTable } from '../catalog/table-names';

/** How many changes of the rows of a view are kept, and how many more there are when the oldest are removed. */
export interface RowLogLimits {
  keptChanges: number;
  excessChanges: number;
}

const defaultLimits: RowLogLimits = { keptChanges: 1_000_000, excessChanges: 250_000 };
const statementTimeoutMs = 600_000;

interface LoggedView {
  appNumber: bigint;
  number: bigint;
  tableNumber: bigint;
  changesHeight: bigint;
  changesPlace: number;
}

interface Place {
  height: bigint;
  place: number;
}

/**
 * Removes the oldest changes from the logs of rows that are too long, and the logs that nobody can follow any more. The
 * rows that are still there stay in the log, at the place where it begins from then on: who begins with nothing gets
 * all of them, and whoever has seen less begins anew.
 */
export async function trimRowLogs(
  { pool, log }: { pool: Pool; log: Logger },
  stopping: AbortSignal,
): Promise<void> {
  const apps = await rows<{ number: bigint }>(
    pool,
    sql`select substr(n.nspname, 3)::int8 as number from pg_class c join pg_namespace n on n.oid = c.relnamespace
        where c.relname = 'view_log' and n.nspname ~ '^a_[0-9]+$'`,
  );
  for (const { number } of apps) {
    if (stopping.aborted) return;
    try {
      await trimLogsOf(pool, number, defaultLimits);
    } catch (error) {
      // An app may have been deleted meanwhile, and a view built again.
      log.warn({ err: error, app: number.toString() }, 'the logs of the rows of views were not trimmed');
    }
  }
}

/** Trims the logs of one app, which has had a view with `changes`. */
export async function trimLogsOf(pool: Pool, appNumber: bigint, limits: RowLogLimits): Promise<void> {
  await execute(
    pool,
    sql`delete from ${viewLogTable(appNumber)}
        where view_number not in (select number from view where app_number = ${appNumber} and keeps_changes)`,
  );
  const views = await rows<LoggedView>(
    pool,
    sql`select app_number as "appNumber", number, table_number as "tableNumber", changes_height as "changesHeight",
          changes_place as "changesPlace"
        from view where app_number = ${appNumber} and keeps_changes and table_number is not null and replaces is null`,
  );
  for (const view of views) {
    const last = await lastExcess(pool, view, limits);
    if (last) await transaction(pool, (tx) => trim(tx, view, last), { statementTimeoutMs });
  }
}

/** The place of the last change that is not kept; undefined where there are not too many. */
function lastExcess(
  pool: Pool,
  { appNumber, number, changesHeight, changesPlace }: LoggedView,
  { keptChanges, excessChanges }: RowLogLimits,
): Promise<Place | undefined> {
  const newest = (offset: number) => sql`
    select height, place from ${viewLogTable(appNumber)}
    where view_number = ${number} and (height, place) > (${changesHeight}, ${changesPlace})
    order by height desc, place desc, seq desc offset ${offset} limit 1`;
  return row<Place>(
    pool,
    sql`select k.height, k.place from (${newest(keptChanges)}) k
        where exists (${newest(keptChanges + excessChanges)})`,
  );
}

async function trim(tx: Connection, view: LoggedView, { height, place }: Place): Promise<void> {
  const { appNumber, number, tableNumber, changesHeight, changesPlace } = view;
  const table = viewLogTable(appNumber);
  await execute(
    tx,
    sql`with old as (
          delete from ${table} where view_number = ${number} and (height, place) <= (${height}, ${place})
          returning height, place, row_id
        )
        insert into ${table} (view_number, height, place, row_id)
        select ${number}, ${height}, ${place}, o.row_id
        from (select distinct row_id from old where (height, place) >= (${changesHeight}, ${changesPlace})) o
        join ${viewTable(appNumber, tableNumber)} v on v.id = o.row_id
        where not exists (select from ${table} l
                          where l.view_number = ${number} and (l.height, l.place) > (${height}, ${place}) and l.row_id = o.row_id)`,
  );
  // The last statement: it locks a row that writes change.
  const moved = await execute(
    tx,
    sql`update view set changes_height = ${height}, changes_place = ${place}
        where number = ${number} and table_number = ${tableNumber} and changes_height = ${changesHeight}
          and changes_place = ${changesPlace}`,
  );
  if (moved === 0) throw new Error(`the log of the view ${number} has begun anew`);
}
