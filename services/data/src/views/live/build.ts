import { notFound } from '@granary/shared/errors';
import { execute, row, type Connection, type Pool } from '@granary/shared/postgres/pool';
import { sql, trusted, type Sql } from '@granary/shared/postgres/sql';
import { retriedTransaction } from '@granary/shared/postgres/transaction';
import { bumpCatalogRevision, lockApp } from '../../catalog/app-lock';
import { COLLECTION_NOT_FOUND, findCollections, type CollectionRef } from '../../catalog/collection';
import { documentsTable } from '../../catalog/table-names';
import { commitsTable } from '../../chain/commit-log';
import { abandonedBuild, deletedView, indexBuild, type Build } from '../build';
import { layoutOf, readLayout } from '../layout';
import { planView } from '../plan/view-plan';
import { addKeyColumns, createViewTable, nextTableNumber } from '../tables';
import { takePlace } from '../replacement';
import { parseVariables } from '../variables';
import { viewColumns, viewsWithApp, type ViewRef } from '../view';
import { changeCte, changesBetween, noChanges } from './changes';
import { createEntries, indexEntries, slotsOf } from './entries';
import { accumulatorColumns } from './group-rows';
import { createJoinKeys, type JoinedChange } from './join-pairs';
import { livePlan, rowDelta, type LivePlan } from './live-plan';
import { viewCtes } from './live-sql';

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
  base: CollectionRef;
  /** Of a view with a join: the collection that is joined. */
  partner: CollectionRef | undefined;
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
    const sourceOf = (name: string): CollectionRef => {
      const source = found.find((each) => each.name === name);
      if (!source) throw notFound(COLLECTION_NOT_FOUND, `There is no collection ${name}`);
      return source;
    };
    const base = sourceOf(query.base);
    const partner = query.joins[0] && sourceOf(query.joins[0].collection);
    const variables = [...parseVariables(view.variablesText).values()].map(({ path }) => path);
    const layout = layoutOf(planView(query, new Map(found.map((each) => [each.name, each]))), variables);
    const layoutText = JSON.stringify(layout);
    const plan = livePlan({ ...definition, layoutText });
    await createViewTable(tx, table, query.groups ? accumulatorColumns(plan, query.groups) : sql``);
    await addKeyColumns(tx, table, layout.columns);
    if (query.groups && slotsOf(plan, query.groups).length > 0) {
      await execute(tx, createEntries(plan));
      await execute(tx, indexEntries(plan));
    }
    for (const statement of plan.join ? createJoinKeys(plan.join) : []) await execute(tx, statement);
    await execute(tx, sql`update view set building_table_number = ${table.number} where number = ${number}`);
    const at = await placeOf(tx, appNumber);
    const rows = query.groups ? await addFirstRow(tx, plan) : 0n;
    return { view, table, base, partner, plan, layoutText, at, rows };
  });
}

const placeOf = async (tx: Connection, appNumber: bigint): Promise<Place> =>
  (await row<Place>(tx, sql`select height, ordinal from head where app_number = ${appNumber}`))!;

/** Fills the table, catches up with the commits since, and switches the view on. Returns the number of its rows. */
export async function runLiveBuild(pool: Pool, build: LiveBuild, filled: Filled): Promise<number> {
  for (const side of sidesOf(build)) await fill(pool, build, side, filled);
  const { join } = build.plan;
  // Not before: by the statistics of one side alone Postgres would scan the keys for the other.
  if (join) await execute(pool, sql`analyze ${join.keys}`);
  await indexBuild(pool, build.table, { rows: Number(build.rows), layout: readLayout(build.layoutText) });
  for (let caughtUp = 0; caughtUp < catchUpsMax; caughtUp += 1) {
    const { height } = (await row<Place>(
      pool,
      sql`select height from head where app_number = ${build.view.appNumber}`,
    ))!;
    if (height - build.at.height <= lockedCommits) break;
    Object.assign(build, await retriedTransaction(pool, (tx) => caughtUpWith(tx, build)));
    await filled(0);
  }
  await switchOn(pool, build);
  return Number(build.rows);
}

/** One of the sources of a view, and how its rows follow when that changes. */
interface Side {
  source: CollectionRef;
  /** `at`: the ordinal of the documents of the other one. */
  joined: (at: bigint) => JoinedChange | undefined;
}

/** In the order in which a build fills them: while no document of the base is there, those of the partner meet nothing. */
function sidesOf({ base, partner }: LiveBuild): Side[] {
  if (!partner) return [{ source: base, joined: () => undefined }];
  return [
    { source: partner, joined: (at) => ({ of: 'partner', base, partner, at }) },
    { source: base, joined: (at) => ({ of: 'base', base, partner, at }) },
  ];
}

/** The documents of a source as they were at the height of the build, by their ids. */
async function fill(pool: Pool, build: LiveBuild, { source, joined }: Side, filled: Filled): Promise<void> {
  const { at, plan } = build;
  let after: string | null = '';
  while (after !== null) {
    const ids: Sql = sql`ids as materialized (
      select id from ${documentsTable(source)} where id > ${after} order by id limit ${batchDocuments})`;
    const changes = changesBetween(source, undefined, at.ordinal);
    const { delta, last, count }: Applied = await applied(pool, plan, { ids, changes, joined: joined(at.ordinal) });
    build.rows += delta;
    after = last;
    if (count > 0n) await filled(Number(count));
  }
}

interface Changes {
  /** The CTE `ids`. */
  ids: Sql;
  /** Of their documents. */
  changes: Sql;
  joined: JoinedChange | undefined;
}

interface Applied {
  delta: bigint;
  last: string | null;
  count: bigint;
}

async function applied(db: Pool | Connection, plan: LivePlan, { ids, changes, joined }: Changes): Promise<Applied> {
  return (await row<Applied>(
    db,
    sql`with ${ids}, ${changeCte(changes)}, ${viewCtes(plan, { joined, isBounded: false })}
        select ${rowDelta(plan)} as delta, (select max(id) from ids) as last, (select count(*) from ids) as count`,
  ))!;
}

/** Gives a new table the row that a view without groups has over nothing. */
async function addFirstRow(tx: Connection, plan: LivePlan): Promise<bigint> {
  const options = { isFirst: true, isBounded: false, joined: undefined };
  const found = await row<{ delta: bigint }>(
    tx,
    sql`with ${changeCte(noChanges)}, ${viewCtes({ ...plan, source: trusted('change'), join: undefined }, options)}
        select ${rowDelta(plan)} as delta`,
  );
  return found!.delta;
}

/**
 * Applies the documents of the commits after the place of the build, as many as one statement takes. The sources follow
 * each other: the first meets the documents that the other had before, that one those which the first has afterwards.
 */
async function caughtUpWith(tx: Connection, build: LiveBuild): Promise<Pick<LiveBuild, 'at' | 'rows'>> {
  const { at, view, plan } = build;
  let { rows } = build;
  const commits = commitsTable(view.appNumber);
  const to = await row<Place>(
    tx,
    sql`select height, ordinal from ${commits} where height > ${at.height} and height <= ${at.height + batchCommits}
        order by height desc limit 1`,
  );
  if (!to) return { at, rows };
  for (const [place, { source, joined }] of sidesOf(build).entries()) {
    const ids = sql`ids as materialized (
      select distinct u.id from ${commits} k cross join unnest(k.ids) u(id)
      where k.height > ${at.height} and k.height <= ${to.height} and k.collection = ${source.name})`;
    const changes = changesBetween(source, at.ordinal, to.ordinal);
    const { delta } = await applied(tx, plan, { ids, changes, joined: joined(place === 0 ? at.ordinal : to.ordinal) });
    rows += delta;
  }
  return { at: to, rows };
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
      while (build.at.height < head.height) Object.assign(build, await caughtUpWith(tx, build));
      const switched = await execute(
        tx,
        sql`update view set table_number = building_table_number, building_table_number = null, row_count = ${build.rows},
              layout_text = ${build.layoutText}, status = 'ready', error = null, refreshed_at = clock_timestamp()
            where number = ${view.number} and building_table_number = ${table.number}`,
      );
      if (switched === 0) throw await abandonedBuild(pool, build);
      await takePlace(tx, view);
      await bumpCatalogRevision(tx, view.appNumber);
    },
    { statementTimeoutMs: 60_000 },
  );
}
