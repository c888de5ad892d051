import { execute, row, type Connection, type Pool } from '@granary/shared/postgres/pool';
import { sql } from '@granary/shared/postgres/sql';
import { retriedTransaction, transaction } from '@granary/shared/postgres/transaction';
import { lockApp } from '../../catalog/app-lock';
import { resolveReferences } from '../../query/execute/references';
import { readJsonText } from '../../query/language/paging';
import { parseViewQuery } from '../language/view-query';
import { layoutOf, type ViewLayout } from '../layout';
import { planView, type ViewPlan } from '../plan/view-plan';
import { takePlace } from '../replacement';
import { rowTexts, type ComputedRow } from '../row-texts';
import { viewRows } from '../sql/view-sql';
import { addKeyColumns, createViewTable, insertRows } from '../tables';
import { parseVariables } from '../variables';
import type { ViewRef } from '../view';
import {
  buildTimeoutMs,
  indexBuild,
  sourcesOf,
  takeTable,
  useTable,
  type Build,
  type BuildObserver,
  type RunnableBuild,
} from './build';

/** The transaction that reads waits while a batch is inserted. */
const idleTimeoutMs = 60_000;
/** Rows that are read and inserted at a time: as many as are about so many bytes. */
const batchBytes = 4 * 1024 * 1024;
const batchRows = { first: 16, min: 8, max: 2_000 };

/** Begins to fill a lazy view again. */
export async function beginSnapshotBuild(pool: Pool, { number }: ViewRef): Promise<RunnableBuild> {
  const build = await retriedTransaction(pool, async (tx) => {
    const taken = await takeTable(tx, number);
    await createViewTable(tx, taken.table);
    return taken;
  });
  const { tableNumber, rowCount } = build.view;
  return {
    ...build,
    // The view is expected to have as many rows as at the last refresh.
    expected: tableNumber === null ? undefined : Number(rowCount),
    unit: 'rows written',
    run: (observer) => runSnapshotBuild(pool, build, observer),
  };
}

/**
 * Computes the rows of a view from one snapshot and fills its new table with them, which then takes the place of the
 * old. The snapshot is that of a transaction that only reads, so that no event waits for its end; each batch is
 * inserted in a transaction of its own. Returns how many rows there are.
 */
async function runSnapshotBuild(pool: Pool, build: Build, observer: BuildObserver): Promise<number> {
  const filled = await transaction(pool, (tx) => fillTable(tx, pool, build, observer), {
    isolation: 'repeatable read',
    readOnly: true,
    statementTimeoutMs: buildTimeoutMs,
  });
  await indexBuild(pool, build, filled.layout, filled.rows);
  await swap(pool, build, filled);
  return filled.rows;
}

interface Filled {
  rows: number;
  layout: ViewLayout;
  /** Every write that was acknowledged before is in the rows. */
  refreshedAt: Date;
}

async function fillTable(tx: Connection, pool: Pool, build: Build, observer: BuildObserver): Promise<Filled> {
  // All rows are read, so what gives the first of them soonest is no better.
  await tx.query(`set local cursor_tuple_fraction = 1`);
  await tx.query(`set local idle_in_transaction_session_timeout = ${idleTimeoutMs}`);
  const { refreshedAt, processId } = (await row<{ refreshedAt: Date; processId: number }>(
    tx,
    sql`select now() as "refreshedAt", pg_backend_pid() as "processId"`,
  ))!;
  observer.reading(processId);
  const plan = await planOf(tx, build.view);
  const layout = layoutOf(
    plan,
    [...parseVariables(build.view.variablesText).values()].map(({ path }) => path),
  );
  await addKeyColumns(pool, build.table, layout.columns);
  await execute(tx, sql`declare view_rows no scroll cursor for ${viewRows(plan)}`);
  const textOf = rowTexts(plan.query);
  let [rows, bytes, size] = [0, 0, batchRows.first];
  for (;;) {
    const fetched = await tx.query<ComputedRow>(`fetch ${size} from view_rows`);
    if (fetched.rows.length === 0) return { rows, layout, refreshedAt };
    const texts = fetched.rows.map(textOf);
    await insertRows(pool, build.table, layout.columns, rows, texts);
    rows += texts.length;
    for (const text of texts) bytes += text.length;
    size = Math.min(batchRows.max, Math.max(batchRows.min, Math.floor((batchBytes * rows) / bytes)));
    await observer.filled(texts.length);
  }
}

/** The plan of a view over its sources as they are for the transaction. Throws COLLECTION_NOT_FOUND, INVALID_QUERY. */
async function planOf(tx: Connection, view: ViewRef): Promise<ViewPlan> {
  const query = parseViewQuery(readJsonText(Buffer.from(view.queryText), 'query'), view.sourceCollections);
  const sources = await sourcesOf(tx, view);
  return planView({ ...query, find: await resolveReferences(tx, view.appId, query.find) }, sources);
}

/** Gives a view the rows of its build. A view that replaces another takes its place in the same transaction. */
async function swap(pool: Pool, build: Build, { rows, layout, refreshedAt }: Filled): Promise<void> {
  const { view } = build;
  const filled = { rows, layoutText: JSON.stringify(layout), refreshedAt: sql`${refreshedAt}` };
  if (view.replaces === null) return useTable(pool, pool, build, filled);
  await retriedTransaction(pool, async (tx) => {
    await lockApp(tx, view.appNumber);
    await useTable(tx, pool, build, filled);
    await takePlace(tx, view);
  });
}
