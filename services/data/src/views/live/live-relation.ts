import { join, sql, type Sql } from '@granary/shared/postgres/sql';
import type { CollectionRef } from '../../catalog/collection';
import { emptyKey, viewKeyColumn } from '../../catalog/table-names';
import type { SortTerm } from '../../query/language/sort';
import { pageAlias, viewRelation, type Relation } from '../../query/plan/relation';
import { directionOf } from '../../query/sql/keyset-sql';
import { valueIn } from '../../query/sql/row-fields';
import { storedView, type ViewRef } from '../view';
import { changeCte, presentChanges } from './changes';
import { livePlan, type LivePlan } from './live-plan';
import { viewRowsOf } from './live-sql';
import { isDateType } from '../../values/field-type';

/** The collections whose documents a view shows. */
export interface LiveSources {
  base: CollectionRef;
  partner: CollectionRef | undefined;
}

/** The rows of a view for one page, and the order that they have where a reader names none. */
export interface ReadableView {
  relation: Relation;
  sort: readonly SortTerm[];
}

/**
 * The rows of a live view, from its table. Its limit holds at the moment of the read. While the view is not whole they
 * are computed from `sources`, of which there are `rowCount`.
 */
export function liveRelation(view: ViewRef, computed?: { sources: LiveSources; rowCount: bigint }): ReadableView {
  const plan = planOf(view);
  const sort = ownSort(plan);
  const relation = viewRelation(storedView(view));
  const { limit } = plan.query;
  if (!computed && limit === undefined) return { relation, sort };
  const all = computed ? computedRows(plan, computed.sources) : plan.table;
  const { rowCount } = computed ?? view;
  const bound = limit === undefined || rowCount < BigInt(limit) ? rowCount : BigInt(limit);
  const limited = limit === undefined ? sql`` : sql`order by ${orderBy(plan, sort)} limit ${limit}`;
  return {
    sort,
    relation: {
      ...relation,
      identity: `v${view.appNumber}.live.${view.number}${computed ? '.computed' : ''}`,
      table: sql`(select o.* from ${computed ? sql`(${all})` : all} o ${limited}) ${pageAlias.row}`,
      // There is no index on rows that are chosen or computed.
      indexes: [],
      rowCount: bound,
      tableRowCount: computed ? computed.sources.base.rowCount : view.rowCount,
    },
  };
}

/** A statement that counts the rows of a view which are computed. */
export const countComputed = (view: ViewRef, sources: LiveSources): Sql =>
  sql`select count(*) as count from (${computedRows(planOf(view), sources)}) o`;

/** The names of the base of a view and of the collection that it joins. */
export function sourceNames(view: ViewRef): { base: string; partner: string | undefined } {
  const { base, joins } = planOf(view).query;
  return { base, partner: joins[0]?.collection };
}

const planOf = (view: ViewRef): LivePlan => livePlan({ ...view, tableNumber: view.tableNumber ?? 0n });

function computedRows(plan: LivePlan, { base, partner }: LiveSources): Sql {
  const { ctes, rows } = viewRowsOf(plan, partner && { base, partner });
  return sql`with ${join([changeCte(presentChanges(base)), ...ctes], ', ')} ${rows}`;
}

/**
 * The sort of a view, then its groups: their ids sort by values, but for dates, and for null where the order descends.
 */
function ownSort({ query: { sort, groups }, columns }: LivePlan): readonly SortTerm[] {
  if (!groups) return sort;
  const descending = sort.at(-1)?.descending ?? false;
  const isDate = (name: string): boolean => columns.some((column) => column.name === name && isDateType(column.type));
  if (!descending && !groups.by.some((path) => isDate(path.join('.')))) return sort;
  const sorted = new Set(sort.map(({ path }) => path.join('.')));
  return [...sort, ...groups.by.filter((path) => !sorted.has(path.join('.'))).map((path) => ({ path, descending }))];
}

/** The order of a sort as SQL, over the columns of a row `o`. */
function orderBy({ query, columns }: LivePlan, sort: readonly SortTerm[]): Sql {
  // A key that is cut, and that of an array or an object, does not decide; nor does that of an instant between groups,
  // while documents of one instant go by their ids.
  const undecided = query.groups ? sql`(16, 80, 96)` : sql`(80, 96)`;
  const terms = sort.flatMap(({ path, descending }): Sql[] => {
    const column = columns.find(({ name }) => name === path.join('.'));
    if (!column) return [];
    const key = sql`o.${viewKeyColumn(column.key)}`;
    const direction = directionOf(descending);
    const isUndecided = sql`octet_length(${key}) > 257 or get_byte(${key}, 0) in ${undecided}`;
    const value = sql`case when ${isUndecided} then ${valueIn(sql`o.body::jsonb`, path)} end`;
    return [sql`${key} = ${emptyKey}`, sql`${key} ${direction}`, sql`${value} ${direction}`];
  });
  const last = directionOf(sort.at(-1)?.descending ?? false);
  return join([...terms, sql`o.id ${last}`], ', ');
}
