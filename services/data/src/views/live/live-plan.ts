import { plainProjection } from '@granary/shared/json/project';
import { empty, join, named, sql, trusted, type Sql } from '@granary/shared/postgres/sql';
import { viewEntriesTable, viewKeyColumn, viewTable } from '../../catalog/table-names';
import { readJsonText } from '../../query/language/paging';
import type { Relation, ViewColumn } from '../../query/plan/relation';
import { Compiler } from '../../query/sql/filter-sql';
import { valueIn } from '../../query/sql/row-fields';
import { parseViewQuery, type ViewQuery } from '../language/view-query';
import { readLayout } from '../layout';

/** How the rows of a live view follow from those of `change`. Types are those that fields had when it was built. */
export interface LivePlan {
  number: bigint;
  table: Sql;
  /** The values that groups keep beside their sums. */
  entries: Sql;
  query: ViewQuery;
  columns: ReadonlyArray<ViewColumn & { key: number }>;
  dates: ReadonlySet<string>;
}

export interface LiveDefinition {
  appNumber: bigint;
  number: bigint;
  tableNumber: bigint;
  queryText: string;
  layoutText: string | null;
  sourceCollections: readonly string[];
}

export function livePlan(view: LiveDefinition): LivePlan {
  const { columns, dates } = readLayout(view.layoutText);
  return {
    number: view.number,
    table: viewTable(view.appNumber, view.tableNumber),
    entries: viewEntriesTable(view.appNumber, view.tableNumber),
    query: parseViewQuery(readJsonText(Buffer.from(view.queryText), 'query'), view.sourceCollections),
    columns: columns.filter((column): column is ViewColumn & { key: number } => column.key !== undefined),
    dates: new Set(dates),
  };
}

const change = trusted('c');

/** The fields of the documents of `change`. Nothing is known of them but their records: they are in no table with keys. */
export function changedFields({ dates }: LivePlan): Compiler {
  const source: Relation = {
    identity: 'change',
    kind: 'documents',
    collection: undefined,
    alias: { row: change, record: change, sort: change },
    table: trusted('change c'),
    visible: empty,
    hasIdColumn: true,
    tieColumn: undefined,
    keys: new Map(),
    indexes: [],
    searches: new Map(),
    dates,
    state: undefined,
    rowCount: 0n,
    tableRowCount: 0n,
    sizeBytes: undefined,
  };
  return new Compiler(source);
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
    const makeKey = trusted(type === 'date' ? 'date_sort_key' : 'sort_key');
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
  name: 'ahead_' | 'changed_' | 'delta_' | 'row_' | 'put_' | 'dropped_' | 'counted_',
  { number }: LivePlan,
): Sql => named(name, number);

/** How many rows the CTEs of a view have added, less those they have removed. */
export const rowDelta = (plan: LivePlan): Sql =>
  sql`(select count(*) filter (where added) from ${cteOf('put_', plan)}) - (select count(*) from ${cteOf('dropped_', plan)})`;
