import { notFound } from '@granary/shared/errors';
import { execute, row, type Connection, type Pool, type Queryable } from '@granary/shared/postgres/pool';
import { expectStatementTimeout } from '@granary/shared/postgres/pool-client';
import { sql } from '@granary/shared/postgres/sql';
import { retriedTransaction, transaction } from '@granary/shared/postgres/transaction';
import { lockApp } from '../catalog/app-lock';
import { COLLECTION_NOT_FOUND, findCollections, type CollectionRef } from '../catalog/collection';
import { resolveReferences } from '../query/execute/references';
import { readJsonText } from '../query/language/paging';
import { JobInterruptedError } from '../jobs/queue';
import { parseViewQuery } from './language/view-query';
import { layoutOf, type ViewLayout } from './layout';
import { planView, type ViewPlan } from './plan/view-plan';
import { takePlace } from './replacement';
import { rowTexts, type ComputedRow } from './row-texts';
import { viewRows } from './sql/view-sql';
import { addKeyColumns, createViewTable, indexRows, insertRows, nextTableNumber, type ViewTable } from './tables';
import { parseVariables } from './variables';
import { VIEW_NOT_FOUND, viewColumns, viewsWithApp, type ViewRef } from './view';

/** A statement of a build that takes longer has failed. */
export const buildTimeoutMs = 600_000;
/** The transaction that reads waits while a batch is inserted. */
const idleTimeoutMs = 60_000;
/** Rows that are read and inserted at a time: as many as are about so many bytes. */
const batchBytes = 4 * 1024 * 1024;
const batchRows = { first: 16, min: 8, max: 2_000 };
/** More rows are indexed concurrently: in a transaction for each, that holds back no events while it reads. */
const indexedAtOnceMax = 20_000;

/** A build under way. */
export interface Build {
  view: ViewRef;
  table: ViewTable;
}

/** Called with the process of the connection that reads, before it does, and with the number of rows after each batch. */
export interface BuildObserver {
  reading(processId: number): void;
  filled(rows: number): Promise<void>;
}

export const deletedView = () => notFound(VIEW_NOT_FOUND, 'The view was deleted, or changed again');

/** Creates the table of a build, which the view names from then on: a crash leaves it to the next. */
export function beginBuild(pool: Pool, number: bigint): Promise<Build> {
  return retriedTransaction(pool, async (tx) => {
    const view = await row<ViewRef>(
      tx,
      sql`select ${viewColumns} from ${viewsWithApp} where v.number = ${number} for update of v`,
    );
    if (!view) throw deletedView();
    const table = { appNumber: view.appNumber, number: await nextTableNumber(tx) };
    await createViewTable(tx, table);
    await execute(tx, sql`update view set building_table_number = ${table.number} where number = ${number}`);
    return { view, table };
  });
}

/** Whether this is still the build of its view: it may have been deleted, or another build may have begun. */
export async function isCurrent(pool: Pool, { view, table }: Build): Promise<boolean> {
  const current = sql`number = ${view.number} and building_table_number = ${table.number}`;
  return (await row(pool, sql`select from view where ${current}`)) !== undefined;
}

/** The error of a build that is no longer that of its view. */
export async function abandonedBuild(pool: Pool, { view }: Build): Promise<Error> {
  const isThere = await row(pool, sql`select from view where number = ${view.number}`);
  return isThere ? new JobInterruptedError('another build of the view has begun') : deletedView();
}

/**
 * Computes the rows of a view from one snapshot and fills its new table with them, which then takes the place of the old.
 * The snapshot is that of a transaction that only reads, so that no event waits for its end; each batch is inserted in a
 * transaction of its own. Returns how many rows there are.
 */
export async function runBuild(pool: Pool, build: Build, observer: BuildObserver): Promise<number> {
  const filled = await transaction(pool, (tx) => fillTable(tx, pool, build, observer), {
    isolation: 'repeatable read',
    readOnly: true,
    statementTimeoutMs: buildTimeoutMs,
  });
  await indexBuild(pool, build.table, filled);
  await swap(pool, build, filled);
  return filled.rows;
}

export interface Filled {
  rows: number;
  layout: ViewLayout;
  /** Every write that was acknowledged before is in the rows. */
  at: Date;
}

async function fillTable(tx: Connection, pool: Pool, build: Build, observer: BuildObserver): Promise<Filled> {
  // All rows are read, so what gives the first of them soonest is no better.
  await tx.query(`set local cursor_tuple_fraction = 1`);
  await tx.query(`set local idle_in_transaction_session_timeout = ${idleTimeoutMs}`);
  const { at, process } = (await row<{ at: Date; process: number }>(
    tx,
    sql`select now() as at, pg_backend_pid() as process`,
  ))!;
  observer.reading(process);
  const plan = await planOf(tx, build.view);
  const layout = layoutOf(
    plan,
    [...parseVariables(build.view.variablesText).values()].map(({ path }) => path),
  );
  await addKeyColumns(pool, build.table, layout.columns);
  await execute(tx, sql`declare wanted no scroll cursor for ${viewRows(plan)}`);
  const textOf = rowTexts(plan.query);
  let [rows, bytes, size] = [0, 0, batchRows.first];
  for (;;) {
    const fetched = await tx.query<ComputedRow>(`fetch ${size} from wanted`);
    if (fetched.rows.length === 0) return { rows, layout, at };
    const texts = fetched.rows.map(textOf);
    await insertRows(pool, build.table, layout.columns, rows, texts);
    rows += texts.length;
    for (const text of texts) bytes += text.length;
    size = Math.min(batchRows.max, Math.max(batchRows.min, Math.floor((batchBytes * rows) / bytes)));
    await observer.filled(rows);
  }
}

/** The plan of a view over its sources as they are for the transaction. Throws COLLECTION_NOT_FOUND, INVALID_QUERY. */
async function planOf(tx: Connection, view: ViewRef): Promise<ViewPlan> {
  const { appNumber, appId, sourceCollections } = view;
  const query = parseViewQuery(readJsonText(Buffer.from(view.queryText), 'query'), sourceCollections);
  const app = { number: appNumber, appId };
  const sources = new Map<string, CollectionRef>();
  for (const source of await findCollections(tx, app, sourceCollections)) sources.set(source.name, source);
  const missing = sourceCollections.find((name) => !sources.has(name));
  if (missing !== undefined) throw notFound(COLLECTION_NOT_FOUND, `There is no collection ${missing}`);
  return planView({ ...query, find: await resolveReferences(tx, appId, query.find) }, sources);
}

/** Creates the indexes of the rows, in a way that holds up nobody. */
export async function indexBuild(
  pool: Pool,
  table: ViewTable,
  { rows, layout }: Pick<Filled, 'rows' | 'layout'>,
): Promise<void> {
  if (rows <= indexedAtOnceMax) {
    return retriedTransaction(pool, (tx) => indexRows(tx, table, layout.columns, false), {
      statementTimeoutMs: buildTimeoutMs,
    });
  }
  const connection = await pool.connect();
  // Without a listener the loss of the connection would end the process; the running statement reports it.
  connection.on('error', () => {});
  try {
    expectStatementTimeout(connection, buildTimeoutMs);
    await connection.query(`set statement_timeout = ${buildTimeoutMs}; set lock_timeout = 0`);
    await indexRows(connection, table, layout.columns, true);
  } finally {
    // The session's settings go with it.
    connection.release(true);
  }
}

/** Gives a view the rows of its build. What replaces a view takes its place in the same transaction. */
async function swap(pool: Pool, build: Build, filled: Filled): Promise<void> {
  const { view } = build;
  if (view.replaces === null) return swapRows(pool, pool, build, filled);
  await retriedTransaction(pool, async (tx) => {
    await lockApp(tx, view.appNumber);
    await swapRows(tx, pool, build, filled);
    await takePlace(tx, view);
  });
}

async function swapRows(db: Queryable, pool: Pool, build: Build, { rows, layout, at }: Filled): Promise<void> {
  const { view, table } = build;
  const swapped = await execute(
    db,
    sql`update view set table_number = building_table_number, building_table_number = null, row_count = ${rows},
          layout_text = ${JSON.stringify(layout)}, status = 'ready', error = null, refreshed_at = ${at}
        where number = ${view.number} and building_table_number = ${table.number}`,
  );
  if (swapped === 0) throw await abandonedBuild(pool, build);
}
