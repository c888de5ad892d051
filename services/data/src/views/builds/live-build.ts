import { execute, row, type Connection, type Pool, type Queryable } from '@granary/shared/postgres/pool';
import { sql, trusted, type Sql } from '@granary/shared/postgres/sql';
import { retriedTransaction } from '@granary/shared/postgres/transaction';
import { bumpCatalogRevision, lockApp } from '../../catalog/app-lock';
import type { CollectionRef } from '../../catalog/collection';
import { documentsTable } from '../../catalog/table-names';
import { commitsTable } from '../../chain/commit-log';
import { layoutOf, type ViewLayout } from '../layout';
import { changeCte, changesBetween, noChanges } from '../live/changes';
import { createEntries, indexEntries } from '../live/entries';
import { accumulatorColumns, hasEntries } from '../live/group-rows';
import { createJoinKeys, type JoinedChange } from '../live/join-pairs';
import { livePlan, rowDelta, type LivePlan } from '../live/live-plan';
import { viewCtes } from '../live/live-sql';
import { planView } from '../plan/view-plan';
import { takePlace } from '../replacement';
import {
  beginRowLog,
  createRowLog,
  loggedAtOnceMax,
  logPrivateRows,
  logRows,
  logStart,
  takeLogPlace,
} from '../row-log';
import { addKeyColumns, createViewTable } from '../tables';
import { parseVariables } from '../variables';
import type { ViewRef } from '../view';
import {
  indexBuild,
  sourcesOf,
  takeTable,
  useTable,
  type Build,
  type BuildObserver,
  type RunnableBuild,
} from './build';

/** Documents that one statement of a build adds. */
const batchDocuments = 2_000;
/** Commits that one statement of a build catches up with. */
const batchCommits = 1_000n;
/** A build takes the lock of the head once it is at most this many commits behind. */
const lockedCommits = 200n;
/** A build that has not come so close after as many statements takes the lock anyway. */
const catchUpsMax = 500;

/** The place of a commit among all of its app. */
interface Place {
  height: bigint;
  ordinal: bigint;
}

/** A build of a live view under way. The versions of documents say what it has read: none is removed meanwhile. */
interface LiveBuild extends Build {
  base: CollectionRef;
  /** The collection that is joined, if the view has a join. */
  partner: CollectionRef | undefined;
  plan: LivePlan;
  layout: ViewLayout;
  /** The last commit whose documents are in the rows. */
  place: Place;
  rows: bigint;
}

/** Begins to fill a live view, at the present height. */
export async function beginLiveBuild(pool: Pool, view: ViewRef): Promise<RunnableBuild> {
  const build = await retriedTransaction(pool, (tx) => begin(tx, view));
  const { base, partner } = build;
  return {
    view: build.view,
    table: build.table,
    expected: Number(base.rowCount + (partner?.rowCount ?? 0n)),
    unit: 'documents read',
    run: (observer) => runLiveBuild(pool, build, observer),
  };
}

/** Creates the table of a build. Under the lock of the app: a purge sees it, or ended before. */
async function begin(tx: Connection, { appNumber, number }: ViewRef): Promise<LiveBuild> {
  await lockApp(tx, appNumber);
  const { view, table } = await takeTable(tx, number);
  const sources = await sourcesOf(tx, view);
  const definition = { ...view, tableNumber: table.number };
  const { query } = livePlan(definition);
  const base = sources.get(query.base)!;
  const partner = query.joins[0] && sources.get(query.joins[0].collection);
  const variables = [...parseVariables(view.variablesText).values()].map(({ path }) => path);
  const layout = layoutOf(planView(query, sources), variables);
  const plan = livePlan({ ...definition, layoutText: JSON.stringify(layout) });
  await createViewTable(tx, table, query.groups ? accumulatorColumns(plan, query.groups) : sql``);
  await addKeyColumns(tx, table, layout.columns);
  if (query.groups && hasEntries(plan, query.groups)) {
    await execute(tx, createEntries(plan));
    await execute(tx, indexEntries(plan));
  }
  for (const statement of plan.join ? createJoinKeys(plan.join) : []) await execute(tx, statement);
  const place = await placeOf(tx, appNumber);
  const rows = query.groups ? await addFirstRow(tx, plan) : 0n;
  return { view, table, base, partner, plan, layout, place, rows };
}

const placeOf = async (tx: Connection, appNumber: bigint): Promise<Place> =>
  (await row<Place>(tx, sql`select height, ordinal from head where app_number = ${appNumber}`))!;

/** Fills the table, catches up with the commits since, and switches the view on. Returns the number of its rows. */
async function runLiveBuild(pool: Pool, build: LiveBuild, observer: BuildObserver): Promise<number> {
  for (const side of sidesOf(build)) await fill(pool, build, side, observer);
  const { join } = build.plan;
  // Not before: by the statistics of one side alone Postgres would scan the keys for the other.
  if (join) await execute(pool, sql`analyze ${join.keys}`);
  await indexBuild(pool, build, build.layout, Number(build.rows));
  await catchUp(pool, build, observer);
  const isLarge = build.rows > loggedAtOnceMax;
  if (isLarge && (await followedState(pool, build.view.number))?.keepsChanges) {
    await logSoFar(pool, build);
    await catchUp(pool, build, observer);
  }
  await switchOn(pool, build);
  return Number(build.rows);
}

/** Catches up with the commits since, until so few are left that writers can wait for them. */
async function catchUp(pool: Pool, build: LiveBuild, observer: BuildObserver): Promise<void> {
  for (let caughtUp = 0; caughtUp < catchUpsMax; caughtUp += 1) {
    const { height } = (await row<Place>(
      pool,
      sql`select height from head where app_number = ${build.view.appNumber}`,
    ))!;
    if (height - build.place.height <= lockedCommits) break;
    Object.assign(build, await retriedTransaction(pool, (tx) => caughtUpWith(tx, build)));
    await observer.filled(0);
  }
}

/** One of the sources of a view, and how its rows follow when that changes. */
interface Side {
  source: CollectionRef;
  /** `at`: the ordinal of the documents of the other one. */
  joined: (at: bigint) => JoinedChange | undefined;
}

/**
 * The sides in the order in which they are filled. The partner comes first: its documents meet nothing while there are
 * none of the base.
 */
function sidesOf({ base, partner }: LiveBuild): Side[] {
  if (!partner) return [{ source: base, joined: () => undefined }];
  return [
    { source: partner, joined: (at) => ({ of: 'partner', base, partner, at }) },
    { source: base, joined: (at) => ({ of: 'base', base, partner, at }) },
  ];
}

/** The documents of a source as they were at the height of the build, by their ids. */
async function fill(pool: Pool, build: LiveBuild, { source, joined }: Side, observer: BuildObserver): Promise<void> {
  const { place, plan } = build;
  let after: string | null = '';
  while (after !== null) {
    const ids: Sql = sql`ids as materialized (
      select id from ${documentsTable(source)} where id > ${after} order by id limit ${batchDocuments})`;
    const changes = changesBetween(source, undefined, place.ordinal);
    const { delta, last, count }: Applied = await applied(pool, plan, { ids, changes, joined: joined(place.ordinal) });
    build.rows += delta;
    after = last;
    if (count > 0n) await observer.filled(Number(count));
  }
}

interface Changes {
  /** The CTE `ids`. */
  ids: Sql;
  /** The changes of the documents whose ids are in `ids`. */
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
  const result = await row<{ delta: bigint }>(
    tx,
    sql`with ${changeCte(noChanges)}, ${viewCtes({ ...plan, source: trusted('change'), join: undefined }, options)}
        select ${rowDelta(plan)} as delta`,
  );
  return result!.delta;
}

/**
 * Applies the documents of the commits after the place of the build, as many as one statement takes. The first source
 * joins the old state of its partner, and the second joins the new state of the first.
 */
async function caughtUpWith(tx: Connection, build: LiveBuild): Promise<Pick<LiveBuild, 'place' | 'rows'>> {
  const { place: from, view, plan } = build;
  let { rows } = build;
  const commits = commitsTable(view.appNumber);
  const to = await row<Place>(
    tx,
    sql`select height, ordinal from ${commits} where height > ${from.height} and height <= ${from.height + batchCommits}
        order by height desc limit 1`,
  );
  if (!to) return { place: from, rows };
  for (const [index, { source, joined }] of sidesOf(build).entries()) {
    const ids = sql`ids as materialized (
      select distinct u.id from ${commits} k cross join unnest(k.ids) u(id)
      where k.height > ${from.height} and k.height <= ${to.height} and k.collection = ${source.name})`;
    const changes = changesBetween(source, from.ordinal, to.ordinal);
    const other = index === 0 ? from : to;
    const { delta } = await applied(tx, plan, { ids, changes, joined: joined(other.ordinal) });
    rows += delta;
  }
  return { place: to, rows };
}

/** Catches up with the last commits under the lock of the app. From then on writes change the rows. */
async function switchOn(pool: Pool, build: LiveBuild): Promise<void> {
  const { view, layout } = build;
  const start = { place: build.place, rows: build.rows };
  await retriedTransaction(
    pool,
    async (tx) => {
      Object.assign(build, start);
      await lockApp(tx, view.appNumber);
      const head = await placeOf(tx, view.appNumber);
      while (build.place.height < head.height) Object.assign(build, await caughtUpWith(tx, build));
      const before = await followedState(tx, targetOf(build));
      const filled = { rows: build.rows, layoutText: JSON.stringify(layout), refreshedAt: sql`clock_timestamp()` };
      await useTable(tx, pool, build, filled);
      await takePlace(tx, view);
      await beginLog(tx, build, before);
      await bumpCatalogRevision(tx, view.appNumber);
    },
    { statementTimeoutMs: 60_000 },
  );
}

/** The state of a view that matters to its followers. */
interface FollowedState {
  hasRows: boolean;
  keepsChanges: boolean;
}

/** The state of a view by its number, as it is now. */
const followedState = (db: Queryable, number: bigint): Promise<FollowedState | undefined> =>
  row<FollowedState>(
    db,
    sql`select refreshed_at is not null as "hasRows", keeps_changes as "keepsChanges" from view where number = ${number}`,
  );

/** The view whose rows a build is to give. */
const targetOf = ({ view }: LiveBuild): bigint => view.replaces ?? view.number;

/** Logs the rows that a build has; from then on its statements log those that they change. */
async function logSoFar(pool: Pool, build: LiveBuild): Promise<void> {
  const { appNumber } = build.view;
  const { number } = build.table;
  await retriedTransaction(pool, (tx) => createRowLog(tx, appNumber));
  await logPrivateRows(pool, appNumber, number);
  build.plan.log = { appNumber, tableNumber: number };
}

/**
 * Lets the rows be followed. Whoever has followed other rows of the view begins anew; who has waited for its first ones
 * is told them, unless they are so many that they are logged before.
 */
async function beginLog(tx: Connection, build: LiveBuild, before: FollowedState | undefined): Promise<void> {
  const { view, table, plan } = build;
  const target = { ...view, number: targetOf(build) };
  const now = await followedState(tx, target.number);
  if (!now?.keepsChanges) return;
  const isAwaited = before?.keepsChanges === true && !before.hasRows && !plan.log;
  if (!isAwaited) await beginRowLog(tx, target);
  if (plan.log) return;
  const place = isAwaited ? await takeLogPlace(tx, target) : logStart;
  await logRows(tx, view.appNumber, table.number, place);
}
