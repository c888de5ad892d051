import type { Logger } from '@granary/shared/logger';
import { execute, row, rows, type Pool } from '@granary/shared/postgres/pool';
import { sql, type Sql } from '@granary/shared/postgres/sql';
import { transaction } from '@granary/shared/postgres/transaction';
import { viewLogTable, viewTable } from '../catalog/table-names';

/** How many changes of the rows of a view are kept, and how many more there are when the oldest are removed. */
export interface RowLogLimits {
  keptChanges: number;
  excessChanges: number;
}

const defaultLimits: RowLogLimits = { keptChanges: 1_000_000, excessChanges: 250_000 };
const statementTimeoutMs = 600_000;
/** Entries that one statement removes from the logs of tables that are gone. */
const batchEntries = 50_000;

/** A view with a log that may be too long. */
interface RowLog {
  appNumber: bigint;
  number: bigint;
  tableNumber: bigint;
  changesHeight: bigint;
  changesPlace: number;
}

/**
 * Removes the oldest changes from the logs of rows that are too long, and the logs of tables that nobody can follow any
 * more. The last change of each row that is there stays: whoever begins with nothing gets all rows, and who has come
 * less far than the first change that is kept begins anew.
 */
export async function trimRowLogs({ pool, log }: { pool: Pool; log: Logger }, stopping: AbortSignal): Promise<void> {
  const apps = await rows<{ number: bigint }>(
    pool,
    sql`select substr(n.nspname, 3)::int8 as number from pg_class c join pg_namespace n on n.oid = c.relnamespace
        where c.relname = 'view_log' and n.nspname ~ '^a_[0-9]+$'`,
  );
  for (const { number } of apps) {
    if (stopping.aborted) return;
    try {
      await trimLogsOf({ pool, log }, number, defaultLimits, stopping);
    } catch (error) {
      // The app may have been deleted meanwhile.
      log.warn({ err: error, app: number.toString() }, 'the logs of the rows of views were not trimmed');
    }
  }
}

/** Trims the logs of one app, which has had a view with `changes`. */
export async function trimLogsOf(
  { pool, log }: { pool: Pool; log: Logger },
  appNumber: bigint,
  limits: RowLogLimits,
  stopping?: AbortSignal,
): Promise<void> {
  for (const { number } of await unusedTables(pool, appNumber)) await removeLog(pool, appNumber, number, stopping);
  const views = await rows<RowLog>(
    pool,
    sql`select app_number as "appNumber", number, table_number as "tableNumber", changes_height as "changesHeight",
          changes_place as "changesPlace"
        from view where app_number = ${appNumber} and keeps_changes and table_number is not null and replaces is null`,
  );
  for (const view of views) {
    if (stopping?.aborted) return;
    try {
      await trim(pool, view, limits);
    } catch (error) {
      // It may have been built again meanwhile.
      log.warn({ err: error, view: view.number.toString() }, 'the log of the rows of a view was not trimmed');
    }
  }
}

/** The numbers of logged tables that nobody follows and no build is going to give to a view. */
function unusedTables(pool: Pool, appNumber: bigint): Promise<Array<{ number: bigint }>> {
  const table = viewLogTable(appNumber);
  // Each number is looked up behind the one before, for a log has many entries of few tables.
  return rows<{ number: bigint }>(
    pool,
    sql`with recursive logged(number) as (
          (select table_number from ${table} order by table_number limit 1)
          union all
          select (select table_number from ${table} where table_number > logged.number order by table_number limit 1)
          from logged where logged.number is not null
        )
        select number from logged where number is not null and number not in (
          select table_number from view where app_number = ${appNumber} and keeps_changes and table_number is not null
          union all
          select building_table_number from view where app_number = ${appNumber} and building_table_number is not null)`,
  );
}

async function removeLog(pool: Pool, appNumber: bigint, tableNumber: bigint, stopping?: AbortSignal): Promise<void> {
  const table = viewLogTable(appNumber);
  let removedCount = batchEntries;
  while (removedCount === batchEntries && !stopping?.aborted) {
    removedCount = await execute(
      pool,
      sql`delete from ${table} where ctid = any(array(
            select ctid from ${table} where table_number = ${tableNumber} limit ${batchEntries}))`,
    );
  }
}

/** The place of the first change that is kept; undefined where there are not too many. */
function firstKept(
  pool: Pool,
  { appNumber, tableNumber, changesHeight, changesPlace }: RowLog,
  { keptChanges, excessChanges }: RowLogLimits,
): Promise<{ height: bigint; place: number } | undefined> {
  const newest = (offset: number): Sql => sql`
    select height, place from ${viewLogTable(appNumber)}
    where table_number = ${tableNumber} and (height, place) >= (${changesHeight}, ${changesPlace})
    order by height desc, place desc, seq desc offset ${offset} limit 1`;
  return row(
    pool,
    sql`select k.height, k.place from (${newest(keptChanges)}) k where exists (${newest(keptChanges + excessChanges)})`,
  );
}

async function trim(pool: Pool, view: RowLog, limits: RowLogLimits): Promise<void> {
  const first = await firstKept(pool, view, limits);
  if (!first) return;
  const { appNumber, number, tableNumber } = view;
  const { height, place } = first;
  // From now on nobody is told of what is removed next.
  const movedCount = await execute(
    pool,
    sql`update view set changes_height = ${height}, changes_place = ${place}
        where number = ${number} and table_number = ${tableNumber} and keeps_changes
          and (changes_height, changes_place) = (${view.changesHeight}, ${view.changesPlace})`,
  );
  // Its log has begun anew meanwhile.
  if (movedCount === 0) return;
  const log = viewLogTable(appNumber);
  const remove = sql`
    with newest as materialized (
      select distinct on (row_id) row_id, height, place, seq from ${log} where table_number = ${tableNumber}
      order by row_id, height desc, place desc, seq desc
    )
    delete from ${log} l using newest n left join ${viewTable(appNumber, tableNumber)} v on v.id = n.row_id
    where l.table_number = ${tableNumber} and l.row_id = n.row_id and (l.height, l.place) < (${height}, ${place})
      and (v.id is null or (l.height, l.place, l.seq) <> (n.height, n.place, n.seq))`;
  await transaction(pool, (tx) => execute(tx, remove), { statementTimeoutMs });
}
