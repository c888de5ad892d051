import { notFound } from '@granary/shared/errors';
import { execute, row, type Connection, type Pool } from '@granary/shared/postgres/pool';
import { sql, type Sql } from '@granary/shared/postgres/sql';
import { retriedTransaction } from '@granary/shared/postgres/transaction';
import { bumpCatalogRevision, lockApp } from '../../catalog/app-lock';
import { COLLECTION_NOT_FOUND, findCollections, type CollectionRef } from '../../catalog/collection';
import { documentsTable } from '../../catalog/table-names';
import { commitsTable } from '../../commit/commit-log';
import { abandonedBuild, deletedView, indexBuild, type Build } from '../build';
import { layoutOf, readLayout } from '../layout';
import { planView } from '../plan/view-plan';
import { addKeyColumns, createViewTable, nextTableNumber } from '../tables';
import { parseVariables } from '../variables';
import { viewColumns, viewsWithApp, type ViewRef } from '../view';
import { changeCte, changesBetween } from './changes';
import { createEntries, indexEntries, slotsOf } from './entries';
import { accumulatorColumns } from './group-rows';
import { livePlan, rowDelta, type LivePlan } from './live-plan';
import { viewCtes, type ChangeOptions } from './live-sql';

/** Documents that one statement of a build adds. */
const batchDocuments = 2_000;
/** Commits that one statement of a build catches up with. */
const batchCommits = 1_000n;
/** So few commits are caught up with under the lock of the head. */
const lockedCommits = 200n;
/** A build that has not come so close after as many statements takes the lock anyway. */
const catchUpsMax = 500;

/** The place of a commit among all of its app. */
interface Place {
  height: bigint;
  ordinal: bigint;
}

/** A build of a live view under way. The versions of documents say what it has read: none is removed meanwhile. */
export interface LiveBuild extends Build {
  source: CollectionRef;
  plan: LivePlan;
  layoutText: string;
  /** The last commit whose documents are in the rows. */
  at: Place;
  rows: bigint;
}

/** Called after each statement that filled the table, with the documents that were read. */
export type Filled = (documents: number) => Promise<void>;

/** Creates the table of a build at the present height. Under the lock of the app: a purge sees it, or ended before. */
export function beginLiveBuild(pool: Pool, { appNumber, number }: ViewRef): Promise<LiveBuild> {
  return retriedTransaction(pool, async (tx) => {
    await lockApp(tx, appNumber);
    const view = await row<ViewRef>(
      tx,
      sql`select ${viewColumns} from ${viewsWithApp} where v.number = ${number} for update of v`,
    );
    if (!view) throw deletedView();
    const found = await findCollections(tx, { number: appNumber, appId: view.appId }, view.sourceCollections);
    const table = { appNumber, number: await nextTableNumber(tx) };
    const definition = { ...view, tableNumber: table.number };
    const { query } = livePlan(definition);
    const source = found.find(({ name }) => name === query.base);
    if (!source) throw notFound(COLLECTION_NOT_FOUND, `There is no collection ${query.base}`);
    const variables = [...parseVariables(view.variablesText).values()].map(({ path }) => path);
    const layout = layoutOf(planView(query, new Map([[source.name, source]])), variables);
    const layoutText = JSON.stringify(layout);
    const plan = livePlan({ ...definition, layoutText });
    await createViewTable(tx, table, query.groups ? accumulatorColumns(plan, query.groups) : sql``);
    await addKeyColumns(tx, table, layout.columns);
    if (query.groups && slotsOf(plan, query.groups).length > 0) {
      await execute(tx, createEntries(plan));
      await execute(tx, indexEntries(plan));
    }
    await execute(tx, sql`update view set building_table_number = ${table.number} where number = ${number}`);
    const at = await placeOf(tx, appNumber);
    const build = { view, table, source, plan, layoutText, at, rows: 0n };
    if (query.groups)
      build.rows += await apply(
        tx,
        build,
        sql`select 0 as w, ''::text as id, '{}'::text as body, 0::int8 as ordinal, 0 as place where false`,
        {
          isFirst: true,
        },
      );
    return build;
  });
}

const placeOf = async (tx: Connection, appNumber: bigint): Promise<Place> =>
  (await row<Place>(tx, sql`select height, ordinal from head where app_number = ${appNumber}`))!;

/** Fills the table, catches up with the commits since, and switches the view on. Returns the number of its rows. */
export async function runLiveBuild(pool: Pool, build: LiveBuild, filled: Filled): Promise<number> {
  await fill(pool, build, filled);
  await indexBuild(pool, build.table, { rows: Number(build.rows), layout: readLayout(build.layoutText) });
  for (let caughtUp = 0; caughtUp < catchUpsMax; caughtUp += 1) {
    const { height } = (await row<Place>(
      pool,
      sql`select height from head where app_number = ${build.view.appNumber}`,
    ))!;
    if (height - build.at.height <= lockedCommits) break;
    await catchUp(pool, build);
    await filled(0);
  }
  await switchOn(pool, build);
  return Number(build.rows);
}

/** The documents as they were at the height of the build, by their ids. */
async function fill(pool: Pool, build: LiveBuild, filled: Filled): Promise<void> {
  const { source, at } = build;
  let after: string | null = '';
  while (after !== null) {
    const ids: Sql = sql`ids as materialized (
      select id from ${documentsTable(source)} where id > ${after} order by id limit ${batchDocuments})`;
    const { delta, last, count }: Applied = await applied(
      pool,
      build,
      ids,
      changesBetween(source, undefined, at.ordinal),
    );
    build.rows += delta;
    after = last;
    if (count > 0n) await filled(Number(count));
  }
}

interface Applied {
  delta: bigint;
  last: string | null;
  count: bigint;
}

/** Applies changes of the documents in the CTE `ids`. */
async function applied(db: Pool | Connection, { plan }: LiveBuild, ids: Sql, changes: Sql): Promise<Applied> {
  return (await row<Applied>(
    db,
    sql`with ${ids}, ${changeCte(changes)}, ${viewCtes(plan)}
        select ${rowDelta(plan)} as delta, (select max(id) from ids) as last, (select count(*) from ids) as count`,
  ))!;
}

async function apply(
  tx: Connection,
  { plan }: { plan: LivePlan },
  changes: Sql,
  options: ChangeOptions,
): Promise<bigint> {
  const found = await row<{ delta: bigint }>(
    tx,
    sql`with ${changeCte(changes)}, ${viewCtes(plan, options)} select ${rowDelta(plan)} as delta`,
  );
  return found!.delta;
}

/** Applies the documents of the commits after the place of the build, as many as one statement takes. */
async function catchUp(db: Pool | Connection, build: LiveBuild): Promise<void> {
  const { source, at, view } = build;
  const commits = commitsTable(view.appNumber);
  const to = await row<Place>(
    db,
    sql`select height, ordinal from ${commits} where height > ${at.height} and height <= ${at.height + batchCommits}
        order by height desc limit 1`,
  );
  if (!to) return;
  const ids = sql`ids as materialized (
    select distinct u.id from ${commits} k cross join unnest(k.ids) u(id)
    where k.height > ${at.height} and k.height <= ${to.height} and k.collection = ${source.name})`;
  const { delta } = await applied(db, build, ids, changesBetween(source, at.ordinal, to.ordinal));
  build.rows += delta;
  build.at = to;
}

/** From here on whoever changes the documents changes the rows. */
async function switchOn(pool: Pool, build: LiveBuild): Promise<void> {
  const { view, table } = build;
  const before = { at: build.at, rows: build.rows };
  await retriedTransaction(
    pool,
    async (tx) => {
      Object.assign(build, before);
      await lockApp(tx, view.appNumber);
      const head = await placeOf(tx, view.appNumber);
      while (build.at.height < head.height) await catchUp(tx, build);
      const switched = await execute(
        tx,
        sql`update view set table_number = building_table_number, building_table_number = null, row_count = ${build.rows},
              layout_text = ${build.layoutText}, status = 'ready', error = null, refreshed_at = clock_timestamp()
            where number = ${view.number} and building_table_number = ${table.number}`,
      );
      if (switched === 0) throw await abandonedBuild(pool, build);
      await bumpCatalogRevision(tx, view.appNumber);
    },
    { statementTimeoutMs: 60_000 },
  );
}
