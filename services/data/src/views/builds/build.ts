import { notFound, ServiceError } from '@granary/shared/errors';
import { execute, row, type Connection, type Pool, type Queryable } from '@granary/shared/postgres/pool';
import { expectStatementTimeout } from '@granary/shared/postgres/pool-client';
import { sql, type Sql } from '@granary/shared/postgres/sql';
import { retriedTransaction } from '@granary/shared/postgres/transaction';
import type { CollectionRef } from '../../catalog/collection';
import { JobInterruptedError } from '../../jobs/queue';
import { requireSources } from '../definition';
import type { ViewLayout } from '../layout';
import { indexRows, nextTableNumber, type ViewTable } from '../tables';
import { VIEW_NOT_FOUND, viewColumns, viewsWithApp, type ViewRef } from '../view';

/** A statement of a build that takes longer has failed. */
export const buildTimeoutMs = 600_000;
/** More rows are indexed concurrently: in a transaction for each, that holds back no events while it reads. */
const indexedAtOnceMax = 20_000;

/** A build under way: its table takes the place of the table of its view once it is filled. */
export interface Build {
  view: ViewRef;
  table: ViewTable;
}

/** A build that can be run, see `runSnapshotBuild` and `runLiveBuild`. */
export interface RunnableBuild extends Build {
  /** The steps that there are to do: documents to read, or rows to write. Undefined where nobody knows. */
  expected: number | undefined;
  unit: 'documents read' | 'rows written';
  /** Fills the table and gives it to the view. Returns the number of rows. */
  run(observer: BuildObserver): Promise<number>;
}

export interface BuildObserver {
  /** Called with the process of a connection before it begins to read, if the build has one that reads for long. */
  reading(processId: number): void;
  /** Called after each statement that filled the table, with the steps that it has done. */
  filled(steps: number): Promise<void>;
}

export const deletedView = () => notFound(VIEW_NOT_FOUND, 'The view was deleted, or changed again');

/** A view by its number; its row is locked where `lock` says so. Throws VIEW_NOT_FOUND. */
export async function viewByNumber(db: Queryable, number: bigint, lock: Sql = sql``): Promise<ViewRef> {
  const view = await row<ViewRef>(
    db,
    sql`select ${viewColumns} from ${viewsWithApp} where v.number = ${number} ${lock}`,
  );
  if (!view) throw deletedView();
  return view;
}

/**
 * Gives a build a table, whose number the view names from then on, so that the next build drops what a crash leaves.
 */
export async function takeTable(tx: Connection, number: bigint): Promise<Build> {
  const view = await viewByNumber(tx, number, sql`for update of v`);
  const table = { appNumber: view.appNumber, number: await nextTableNumber(tx) };
  await execute(tx, sql`update view set building_table_number = ${table.number} where number = ${number}`);
  return { view, table };
}

/** The sources of a view by their names. Throws COLLECTION_NOT_FOUND. */
export const sourcesOf = (
  db: Queryable,
  { appNumber, appId, sourceCollections }: ViewRef,
): Promise<ReadonlyMap<string, CollectionRef>> => requireSources(db, { number: appNumber, appId }, sourceCollections);

const isBuildOf = ({ view, table }: Build): Sql =>
  sql`number = ${view.number} and building_table_number = ${table.number}`;

/** Whether this is still the build of its view: the view may have been deleted, or another build may have begun. */
export const isCurrent = async (db: Queryable, build: Build): Promise<boolean> =>
  (await row(db, sql`select from view where ${isBuildOf(build)}`)) !== undefined;

/** The error of a build that is no longer that of its view. */
export async function abandonedBuild(pool: Pool, { view }: Build): Promise<Error> {
  const isThere = await row(pool, sql`select from view where number = ${view.number}`);
  return isThere ? new JobInterruptedError('another build of the view has begun') : deletedView();
}

/** Creates the indexes of the rows, in a way that holds up nobody. */
export async function indexBuild(
  pool: Pool,
  { table }: Build,
  { columns }: Pick<ViewLayout, 'columns'>,
  rows: number,
): Promise<void> {
  if (rows <= indexedAtOnceMax) {
    return retriedTransaction(pool, (tx) => indexRows(tx, table, columns, false), {
      statementTimeoutMs: buildTimeoutMs,
    });
  }
  const connection = await pool.connect();
  // Without a listener the loss of the connection would end the process; the running statement reports it.
  connection.on('error', () => {});
  try {
    expectStatementTimeout(connection, buildTimeoutMs);
    await connection.query(`set statement_timeout = ${buildTimeoutMs}; set lock_timeout = 0`);
    await indexRows(connection, table, columns, true);
  } finally {
    // The session's settings go with it.
    connection.release(true);
  }
}

/** The rows with which a build has filled its table. */
export interface FilledTable {
  rows: number | bigint;
  layoutText: string;
  /** The time by the clock of the database: every write that was acknowledged before is in the rows. */
  refreshedAt: Sql;
}

/** Gives a view the table of its build, if it is still its build. */
export async function useTable(db: Queryable, pool: Pool, build: Build, filled: FilledTable): Promise<void> {
  const { rows, layoutText, refreshedAt } = filled;
  const switched = await execute(
    db,
    sql`update view set table_number = building_table_number, building_table_number = null, row_count = ${rows},
          layout_text = ${layoutText}, status = 'ready', error = null, refreshed_at = ${refreshedAt}
        where ${isBuildOf(build)}`,
  );
  if (switched === 0) throw await abandonedBuild(pool, build);
}

/** Ends a build that will be tried again: its table is no longer that of a build. */
export const endBuild = (pool: Pool, build: Build): Promise<unknown> =>
  execute(pool, sql`update view set building_table_number = null where ${isBuildOf(build)}`);

/**
 * Keeps the reason of a failed build. A live view that has a table has not failed: its rows follow the writes still.
 */
export async function failBuild(pool: Pool, { view }: Build, reason: unknown): Promise<void> {
  const text = reason instanceof ServiceError ? reason.message : 'The view could not be filled';
  await execute(
    pool,
    sql`update view set error = ${text},
          status = case when refresh_mode = 'lazy' or table_number is null then 'failed' else status end
        where number = ${view.number}`,
  );
}
