import { join, named, sql, trusted, type Sql } from '@granary/shared/postgres/sql';
import { viewKeyColumn } from '../../catalog/table-names';
import { columnPaths, type Aggregate, type Groups } from '../language/aggregates';
import { columnTree, type ColumnNode } from '../row-texts';
import { changedFields, cteOf, excluded, keyColumns, selectedText, type LivePlan } from './live-plan';

/** A number that a group keeps and changes by differences, with its column. */
interface Accumulator {
  column: Sql;
  type: 'int8' | 'numeric';
  /** Its difference, from the rows of `change` with the arguments of aggregates. */
  delta: Sql;
}

/** A grouped view as SQL. */
interface GroupedPlan {
  /** Of the groups, then of the aggregates: the JSON text of each column of a row `x`. */
  texts: readonly Sql[];
  accumulators: readonly Accumulator[];
  /** The arguments of aggregates, as `x0`, `x1`, … */
  values: readonly Sql[];
}

function groupedPlan(plan: LivePlan, { by, aggregates }: Groups): GroupedPlan {
  const fields = changedFields(plan);
  const accumulators: Accumulator[] = [{ column: sql`n`, type: 'int8', delta: sql`coalesce(sum(e.w), 0)::int8` }];
  const values: Sql[] = [];
  const texts = by.map((_, at) => sql`x.${named('t', BigInt(at))}`);
  aggregates.forEach((aggregate, at) => {
    if (aggregate.path) values.push(sql`${fields.value(aggregate.path)} as ${named('x', BigInt(at))}`);
    const { text, added } = aggregateSql(aggregate, at);
    accumulators.push(...added);
    texts.push(text);
  });
  return { texts, accumulators, values };
}

function aggregateSql({ operator, path }: Aggregate, at: number): { text: Sql; added: Accumulator[] } {
  if (path === undefined) return { text: sql`x.n::text`, added: [] };
  const value = sql`e.${named('x', BigInt(at))}`;
  const [count, sum] = [named('c', BigInt(at)), named('s', BigInt(at))];
  const countOf = (condition: Sql): Accumulator => ({
    column: count,
    type: 'int8',
    delta: sql`coalesce(sum(e.w) filter (where ${condition}), 0)::int8`,
  });
  if (operator === 'count') {
    return { text: sql`x.${count}::text`, added: [countOf(sql`jsonb_typeof(${value}) <> 'null'`)] };
  }
  const isNumber = sql`jsonb_typeof(${value}) = 'number'`;
  const summed: Accumulator = {
    column: sum,
    type: 'numeric',
    // Anything but a number would be an error, and Postgres may look at the argument before a filter.
    delta: sql`coalesce(sum(e.w * case when ${isNumber} then ${value}::numeric end), 0)`,
  };
  if (operator === 'sum') return { text: sql`trim_scale(x.${sum})::text`, added: [summed] };
  return { text: sql`coalesce(average_of(x.${sum}, x.${count})::text, 'null')`, added: [summed, countOf(isNumber)] };
}

/** The columns of the table of a grouped view beside those of every view; counts are never negative. */
export function accumulatorColumns(plan: LivePlan, groups: Groups): Sql {
  const least = groups.by.length === 0 ? sql`0` : sql`1`;
  const columns = groupedPlan(plan, groups).accumulators.map(({ column, type }, at) => {
    if (at === 0) return sql`, n int8 not null check (n >= ${least})`;
    return type === 'int8' ? sql`, ${column} int8 not null check (${column} >= 0)` : sql`, ${column} numeric not null`;
  });
  return join(columns, '');
}

/** What the rows of `change` make of each group: its id, the texts of its values, and differences. */
function groupDeltas(plan: LivePlan, { by }: Groups, { accumulators, values }: GroupedPlan, keepsAll: boolean): Sql {
  const fields = changedFields(plan);
  const numbers = by.map((_, at) => named('g', BigInt(at)));
  const groupValues = by.map((path, at) => sql`coalesce(${fields.value(path)}, 'null'::jsonb) as ${numbers[at]!}`);
  const where = fields.where(plan.query.find);
  const parts = numbers.map((group) => sql`group_part(q.${group})`);
  const id = by.length === 0 ? sql`''::text` : sql`group_id(${join(parts, ` || '.' || `)})`;
  const texts = numbers.map((group, at) => sql`, canonical_json(q.${group}) as ${named('t', BigInt(at))}`);
  const deltas = accumulators.map(({ column, delta }) => sql`${delta} as ${column}`);
  const columns = accumulators.map(({ column }) => sql`, q.${column}`);
  const groupBy = by.length === 0 ? sql`` : sql`group by ${join(numbers, ', ')}`;
  const changes = accumulators.map(({ column }) => sql`q.${column} <> 0`);
  return sql`select ${id} as id${join(texts, '')}${join(columns, '')} from (
      select ${join([...numbers, ...deltas], ', ')}
      from (select ${join([sql`c.w`, ...groupValues, ...values], ', ')} from change c ${where} offset 0) e ${groupBy}) q
    ${keepsAll ? sql`` : sql`where ${join(changes, ' or ')}`}`;
}

/** The rows of groups from rows `x` with their accumulators, as `id, body`, accumulators and keys. */
function groupTexts(plan: LivePlan, groups: Groups, { texts, accumulators }: GroupedPlan, source: Sql): Sql {
  const text = selectedText(plan, nodeText(columnTree(columnPaths(groups)), texts));
  const columns = accumulators.map(({ column }) => sql`, x.${column}`);
  const { values } = keyColumns(plan, sql`z.j`);
  const record = plan.columns.length === 0 ? sql`` : sql`cross join lateral (select y.body::jsonb as j offset 0) z`;
  return sql`select x.id, y.body${join(columns, '')}${values} from (${source}) x
    cross join lateral (select ${text} as body offset 0) y ${record}`;
}

/** The text of an object whose members are columns. The names are parameters. */
function nodeText({ column, members }: ColumnNode, texts: readonly Sql[]): Sql {
  if (column !== undefined) return texts[column]!;
  const parts = [...members].map(([step, member], at) => {
    const name = `${at === 0 ? '{' : ','}${JSON.stringify(step)}:`;
    return sql`${name}::text || ${nodeText(member, texts)}`;
  });
  return parts.length === 0 ? sql`'{}'` : sql`${join(parts, ' || ')} || '}'`;
}

/** The rows of a grouped view over all that is in `change`. */
export function groupRows(plan: LivePlan, groups: Groups): Sql {
  const grouped = groupedPlan(plan, groups);
  return groupTexts(plan, groups, grouped, groupDeltas(plan, groups, grouped, true));
}

/** The CTE of what the rows of `change` make of each group. `isFirst`: of the row that a view without groups always has too. */
export const groupDelta = (plan: LivePlan, groups: Groups, isFirst: boolean): Sql =>
  sql`${cteOf('delta_', plan)} as materialized (${groupDeltas(plan, groups, groupedPlan(plan, groups), isFirst)})`;

/** The same from the JSON of such rows. */
export function groupDeltaOf(plan: LivePlan, groups: Groups, json: string): Sql {
  const texts = groups.by.map((_, at) => sql`, ${named('t', BigInt(at))} text`);
  const sums = groupedPlan(plan, groups).accumulators.map(({ column, type }) => sql`, ${column} ${trusted(type)}`);
  return sql`${cteOf('delta_', plan)} as materialized (
    select * from json_to_recordset(${json}::json) as d(id text${join(texts, '')}${join(sums, '')}))`;
}

/** CTEs that change the rows of such a view by its delta. */
export function groupCtes(plan: LivePlan, groups: Groups): Sql[] {
  const grouped = groupedPlan(plan, groups);
  const [delta, row] = [cteOf('delta_', plan), cteOf('row_', plan)];
  const [put, dropped] = [cteOf('put_', plan), cteOf('dropped_', plan)];
  const texts = groups.by.map((_, at) => sql`, d.${named('t', BigInt(at))}`);
  const sums = grouped.accumulators.map(({ column }) => sql`, coalesce(v.${column}, 0) + d.${column} as ${column}`);
  const changed = sql`select d.id${join(texts, '')}${join(sums, '')} from ${delta} d left join ${plan.table} v on v.id = d.id`;
  const { names } = keyColumns(plan, sql`z.j`);
  const columns = grouped.accumulators.map(({ column }) => column);
  const keys = plan.columns.map(({ key }) => viewKeyColumn(key));
  const isLeft = groups.by.length === 0 ? sql`true` : sql`r.n <> 0`;
  return [
    sql`${row} as materialized (${groupTexts(plan, groups, grouped, changed)})`,
    sql`${put} as (insert into ${plan.table} as v (id, body, ${join(columns, ', ')}${names})
          select * from ${row} r where ${isLeft} and assert_view_change((select count(*) from ${delta}))
          on conflict (id) do update set ${excluded([sql`body`, ...columns, ...keys])} returning old.id is null as added)`,
    sql`${dropped} as (delete from ${plan.table} v using ${row} r where v.id = r.id and not (${isLeft}) returning 1)`,
  ];
}
