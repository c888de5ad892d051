import { databaseTime } from '@granary/shared/postgres/clock';
import { execute, row, type Connection, type Pool } from '@granary/shared/postgres/pool';
import { sql, type Sql } from '@granary/shared/postgres/sql';
import { viewLogTable, viewTable } from '../catalog/table-names';
import { logBetweenCommits } from '../chain/erasure-log';

/**
 * The log of the changed rows of an app's live views with `changes`. An entry says that a row of a table has changed at
 * a place of the app, or is gone since; its text is that of the row as it is. Commits log at their place 0, before
 * their documents, and erasures at the first place that they take, under the lock of the head. The rows that a table
 * had when its log began stand at the very beginning, or where they were switched on, so that each row that is there
 * has an entry.
 */
export const createRowLog = (tx: Connection, appNumber: bigint): Promise<unknown> =>
  execute(
    tx,
    sql`create table if not exists ${viewLogTable(appNumber)} (
          table_number bigint not null, height bigint not null, place int not null,
          seq bigint generated always as identity, row_id text collate "C" not null,
          primary key (table_number, height, place, seq))`,
  );

/** Rows that are logged under the lock of an app, at most: a table of more is built beside. */
export const loggedAtOnceMax = 200_000n;
/** Rows of one statement where nobody waits for it. */
const batchRows = 50_000;

/** A view whose rows are logged. */
interface LoggedView {
  appNumber: bigint;
  number: bigint;
  name: string;
}

/**
 * Lets the changes of a view be kept from now on: whoever has followed it before begins anew. It takes a place between
 * two commits, so that every later position is behind it. The app must be locked.
 */
export async function beginRowLog(tx: Connection, view: LoggedView): Promise<void> {
  const { height, place } = await takeLogPlace(tx, view);
  await execute(
    tx,
    sql`update view set changes_height = ${height}, changes_place = ${place + 1} where number = ${view.number}`,
  );
}

/** A place between two commits at which rows may be logged. The app must be locked. */
export async function takeLogPlace(tx: Connection, view: LoggedView): Promise<LogPlace> {
  await createRowLog(tx, view.appNumber);
  const time = await databaseTime(tx);
  return logBetweenCommits(tx, { ...view, reason: 'view', ids: [], at: time, isPublic: false });
}

export interface LogPlace {
  height: bigint;
  place: number;
}

/** Before all that is logged: only who begins with nothing reads it. */
export const logStart: LogPlace = { height: 0n, place: 0 };

/** Logs the rows of a table in one statement. The app must be locked, for a write would log them as well. */
export const logRows = (
  tx: Connection,
  appNumber: bigint,
  tableNumber: bigint,
  { height, place }: LogPlace,
): Promise<unknown> =>
  execute(
    tx,
    sql`insert into ${viewLogTable(appNumber)} (table_number, height, place, row_id)
        select ${tableNumber}, ${height}, ${place}, id from ${viewTable(appNumber, tableNumber)} order by id`,
  );

/** Logs the rows of a table that nobody reads or writes yet. */
export async function logPrivateRows(pool: Pool, appNumber: bigint, tableNumber: bigint): Promise<void> {
  const table = viewTable(appNumber, tableNumber);
  let after: string | null | undefined;
  while (after !== null) {
    // A view that is one group has a row whose id is empty.
    const rest: Sql = after === undefined ? sql`true` : sql`id > ${after}`;
    const last: { id: string | null } | undefined = await row<{ id: string | null }>(
      pool,
      sql`with logged as (
            insert into ${viewLogTable(appNumber)} (table_number, height, place, row_id)
            select ${tableNumber}, 0, 0, id from ${table} where ${rest} order by id limit ${batchRows} returning row_id)
          select max(row_id) as id from logged`,
    );
    after = last?.id ?? null;
  }
}
