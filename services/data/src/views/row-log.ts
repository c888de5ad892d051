import { databaseTime } from '@granary/shared/postgres/clock';
import { execute, type Connection } from '@granary/shared/postgres/pool';
import { sql } from '@granary/shared/postgres/sql';
import { viewLogTable, viewTable } from '../catalog/table-names';
import { logBetweenCommits } from '../chain/erasure-log';

/**
 * The log of the changed rows of an app's live views with `changes`. An entry says that a row has changed at a place of
 * the app, or is gone since; its text is that of the row as it is. Commits log at their place 0, before their
 * documents, and erasures at the first place that they take, under the lock of the head. Each present row of a view has
 * an entry, since its log begins with all of them.
 */
const createRowLog = (tx: Connection, appNumber: bigint): Promise<unknown> =>
  execute(
    tx,
    sql`create table if not exists ${viewLogTable(appNumber)} (
          view_number bigint not null, height bigint not null, place int not null,
          seq bigint generated always as identity, row_id text collate "C" not null,
          primary key (view_number, height, place, seq))`,
  );

/** A view whose rows are logged. */
interface LoggedView {
  appNumber: bigint;
  number: bigint;
  name: string;
}

/**
 * Begins the log of a view anew, at a place of its own between two commits: whoever has seen less than that has to
 * begin anew. The app must be locked, and no write may log rows of the view before this transaction ends.
 * `tableNumber`: the table whose rows are logged as changed; null where there is none yet.
 */
export async function beginRowLog(tx: Connection, view: LoggedView, tableNumber: bigint | null): Promise<void> {
  const { height, place } = await takePlace(tx, view);
  await execute(
    tx,
    sql`update view set changes_height = ${height}, changes_place = ${place} where number = ${view.number}`,
  );
  if (tableNumber !== null) await logAll(tx, view, tableNumber, { height, place });
}

/** Logs all rows of a view that had none before: its followers lack nothing else. The app must be locked. */
export async function logFirstRows(tx: Connection, view: LoggedView, tableNumber: bigint): Promise<void> {
  await logAll(tx, view, tableNumber, await takePlace(tx, view));
}

interface LogPlace {
  height: bigint;
  place: number;
}

async function takePlace(tx: Connection, view: LoggedView): Promise<LogPlace> {
  await createRowLog(tx, view.appNumber);
  const time = await databaseTime(tx);
  return logBetweenCommits(tx, { ...view, reason: 'view', ids: [], at: time, isPublic: false });
}

const logAll = (
  tx: Connection,
  { appNumber, number }: LoggedView,
  tableNumber: bigint,
  { height, place }: LogPlace,
): Promise<unknown> =>
  execute(
    tx,
    sql`insert into ${viewLogTable(appNumber)} (view_number, height, place, row_id)
        select ${number}, ${height}, ${place}, id from ${viewTable(appNumber, tableNumber)} order by id`,
  );
