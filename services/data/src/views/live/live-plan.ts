import { plainProjection } from '../../json/project';
import { empty, join, named, sql, trusted, type Sql } from '@granary/shared/postgres/sql';
import { viewEntriesTable, viewJoinKeysTable, viewKeyColumn, viewTable } from '../../catalog/table-names';
import type { Path } from '../../query/language/condition';
import { readJsonText } from '../../query/language/paging';
import type { Relation, ViewColumn } from '../../query/plan/relation';
import { Compiler } from '../../query/sql/filter-sql';
import { valueIn } from '../../query/sql/row-fields';
import { parseViewQuery, type ViewQuery } from '../language/view-query';
import { readLayout } from '../layout';
import { isDateType } from '../../values/field-type';

/** A join of a live view. */
export interface LiveJoin {
  /** The member of the rows that is the partner. */
  alias: string;
  isInner: boolean;
  /** Fields of the partner, each with that of the base which it equals; of a date their instants are compared. */
  on: ReadonlyArray<{ path: Path; to: Path; isDate: boolean }>;
  /** The keys of the documents of both collections. */
  keys: Sql;
}

/** How the rows of a live view follow from those of `source`. Types are those that fields had when it was built. */
export interface LivePlan {
  number: bigint;
  table: Sql;
  /** The values that groups keep beside their sums. */
  entries: Sql;
  query: ViewQuery;
  /** `change`, or the pairs of the join: `w, ordinal, place, j`, where rows are not groups also `id, body`. */
  source: Sql;
  join: LiveJoin | undefined;
  columns: ReadonlyArray<ViewColumn & { key: number }>;
  dates: ReadonlySet<string>;
  /** Where the changes of its rows are logged; undefined: nowhere. */
  log: { appNumber: bigint; tableNumber: bigint } | undefined;
}

export interface LiveDefinition {
  appNumber: bigint;
  number: bigint;
  tableNumber: bigint;
  queryText: string;
  layoutText: string | null;
  sourceCollections: readonly string[];
}

/** `logsRows`: whether the statements of the plan log which rows they change. */
export function livePlan(view: LiveDefinition, logsRows = false): LivePlan {
  const { columns, dates } = readLayout(view.layoutText);
  const query = parseViewQuery(readJsonText(Buffer.from(view.queryText), 'query'), view.sourceCollections);
  const join = joinOf(view, query, new Set(dates));
  return {
    number: view.number,
    table: viewTable(view.appNumber, view.tableNumber),
    entries: viewEntriesTable(view.appNumber, view.tableNumber),
    query,
    source: join ? cteOf('pair_', view) : trusted('change'),
    join,
    columns: columns.filter((column): column is ViewColumn & { key: number } => column.key !== undefined),
    dates: new Set(dates),
    log: logsRows ? { appNumber: view.appNumber, tableNumber: view.tableNumber } : undefined,
  };
}

function joinOf(view: LiveDefinition, { joins }: ViewQuery, dates: ReadonlySet<string>): LiveJoin | undefined {
  const [only] = joins;
  if (!only) return undefined;
  const { alias, isInner, on } = only;
  return {
    alias,
    isInner,
    on: on.map(({ path, to }) => ({ path, to, isDate: dates.has([alias, ...path].join('.')) })),
    keys: viewJoinKeysTable(view.appNumber, view.tableNumber),
  };
}

const change = trusted('c');

/** The fields of the rows of its source. Nothing is known of them but their records: they are in no table with keys. */
export function changedFields({ dates, source: rows, join: joined }: LivePlan): Compiler {
  const source: Relation = {
    identity: 'change',
    kind: 'documents',
    collection: undefined,
    alias: { row: change, record: change, sort: change },
    table: sql`${rows} c`,
    visible: empty,
    // The id of a pair is not that of a document.
    hasIdColumn: !joined,
    tieColumn: undefined,
    keys: new Map(),
    indexes: [],
    searches: new Map(),
    dates,
    declared: new Map(),
    fieldNames: [],
    cipher: undefined,
    state: undefined,
    rowCount: 0n,
    tableRowCount: 0n,
    sizeBytes: undefined,
  };
  return joined ? new PairFields(source) : new Compiler(source);
}

/** Pairs have their record at hand, and not always a text. */
class PairFields extends Compiler {
  override rareValue(path: Path): Sql {
    return this.value(path);
  }
}

/** The text of a row as the select of the view leaves it. */
export function selectedText({ query: { projection } }: LivePlan, text: Sql): Sql {
  if (projection === 'all') return text;
  const selection = JSON.stringify(plainProjection(projection));
  return sql`coalesce(selected_json((${text})::json, ${selection}::jsonb), '{}')`;
}

/** The key columns of a view, each with a comma before it: names, and values from the record of a row. */
export function keyColumns({ columns }: LivePlan, record: Sql): { names: Sql; values: Sql } {
  const names = columns.map(({ key }) => sql`, ${viewKeyColumn(key)}`);
  const values = columns.map(({ name, type, key }) => {
    const makeKey = trusted(isDateType(type) ? 'date_sort_key' : 'sort_key');
    return sql`, coalesce(${makeKey}(${valueIn(record, name.split('.'))}), '\\xf0') as ${viewKeyColumn(key)}`;
  });
  return { names: join(names, ''), values: join(values, '') };
}

/** `on conflict` sets these columns to what was to be inserted. */
export const excluded = (columns: readonly Sql[]): Sql =>
  join(
    columns.map((column) => sql`${column} = excluded.${column}`),
    ', ',
  );

/** The name of a CTE of one view. */
export const cteOf = (
  name:
    | 'keyed_'
    | 'turned_'
    | 'met_'
    | 'pair_'
    | 'entered_'
    | 'left_'
    | 'changed_'
    | 'delta_'
    | 'row_'
    | 'put_'
    | 'dropped_'
    | 'logged_'
    | 'counted_',
  { number }: Pick<LivePlan, 'number'>,
): Sql => named(name, number);

/** Asserts that neither more rows come nor more rows go than a change of a view may touch. */
export const assertTouched = (rows: Sql): Sql => sql`assert_view_change(
  (select greatest(count(*) filter (where w = 1), count(*) filter (where w = -1)) from ${rows}))`;

/** How many rows the CTEs of a view have added, less those they have removed. */
export const rowDelta = (plan: LivePlan): Sql =>
  sql`(select count(*) filter (where added) from ${cteOf('put_', plan)}) - (select count(*) from ${cteOf('dropped_', plan)})`;
