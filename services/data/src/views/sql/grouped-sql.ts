import { join, named, sql, type Sql } from '@granary/shared/postgres/sql';
import { directionOf } from '../../query/sql/keyset-sql';
import { columnPaths, type Aggregate, type Groups } from '../language/aggregates';
import type { ViewPlan } from '../plan/view-plan';
import { ViewFields } from './joined-fields';

/** Whether the value of an aggregate is the text of a document, and not computed. */
export const isAsWritten = ({ operator }: Aggregate): boolean => operator === 'first' || operator === 'last';

const column = (at: number): Sql => named('c', BigInt(at));

/**
 * One row for each group, in the order of the view: columns c0, c1, … hold the JSON texts of the groups, then of the
 * aggregates, null where there is no value. Groups are formed by the value of JSON, so that 1 and 1.0 are one.
 */
export function groupedRows(plan: ViewPlan, groups: Groups): Sql {
  const fields = new ViewFields(plan);
  const where = fields.where(plan.query.find);
  const values = [
    ...groups.by.map((path) => sql`coalesce(${fields.value(path)}, 'null'::jsonb)`),
    ...groups.aggregates.map((aggregate) => aggregateValue(fields, aggregate)),
  ];
  const columns = values.map((value, at) => sql`${value} as ${column(at)}`);
  const numbers = groups.by.map((_, at) => named('', BigInt(at + 1)));
  const groupBy = numbers.length === 0 ? sql`` : sql`group by ${join(numbers, ', ')}`;
  const order = orderOf(plan, groups);
  const orderBy = order.length === 0 ? sql`` : sql`order by ${join(order, ', ')}`;
  const texts = values.map((_, at) => sql`g.${column(at)}::text as ${column(at)}`);
  return sql`select ${join(texts, ', ')}
    from (select ${join(columns, ', ')} from ${fields.records()} ${where} ${groupBy}) g ${orderBy}`;
}

/** The sort of the view; then the groups, so that the same documents always give the same rows. */
function orderOf({ query: { sort }, rows: { dates } }: ViewPlan, groups: Groups): Sql[] {
  const names = columnPaths(groups).map((path) => path.join('.'));
  const sources = [...groups.by, ...groups.aggregates.map(({ path }) => path)];
  const byColumn = (at: number, descending: boolean): Sql => {
    const aggregate = groups.aggregates[at - groups.by.length];
    const isWritten = aggregate !== undefined && isAsWritten(aggregate);
    const value = sql`nullif(g.${column(at)}${isWritten ? sql`::jsonb` : sql``}, 'null'::jsonb)`;
    const isOfField = aggregate === undefined || ['first', 'last', 'min', 'max'].includes(aggregate.operator);
    return orderBy(value, isOfField && dates.has(sources[at]?.join('.') ?? ''), descending);
  };
  const last = sort.at(-1)?.descending ?? false;
  return [
    ...sort.map(({ path, descending }) => byColumn(names.indexOf(path.join('.')), descending)),
    ...groups.by.map((_, at) => byColumn(at, last)),
  ];
}

/** The order by one value: instants of a date, strings, numbers, booleans, arrays, objects, or the reverse; null last. */
function orderBy(value: Sql, isDate: boolean, descending: boolean): Sql {
  const direction = directionOf(descending);
  const { rank, sorted } = ranked(value, isDate);
  const plain = sql`${value} is null, ${rank} ${direction}, ${sorted} ${direction}`;
  return isDate ? sql`${plain}, ${value} ${direction}` : plain;
}

/** What a value is compared by, and its rank before that. */
function ranked(value: Sql, isDate: boolean): { rank: Sql; sorted: Sql } {
  if (!isDate) return { rank: sql`sort_rank(${value})`, sorted: value };
  const isInstant = sql`jsonb_typeof(${value}) = 'string' and instant_of(${value} #>> '{}') is not null`;
  return { rank: sql`case when ${isInstant} then -1 else sort_rank(${value}) end`, sorted: sql`date_key(${value})` };
}

function aggregateValue(fields: ViewFields, { operator, path }: Aggregate): Sql {
  if (path === undefined) return sql`to_jsonb(count(*))`;
  const value = sql`nullif(${fields.value(path)}, 'null'::jsonb)`;
  // Anything but a number would be an error, and Postgres may look at the argument before the filter.
  const isNumber = sql`jsonb_typeof(${fields.value(path)}) = 'number'`;
  const number = sql`case when ${isNumber} then ${fields.value(path)}::numeric end`;
  const { rank, sorted } = ranked(value, fields.isDate(path));
  const extreme = sql`row(${rank}, ${sorted}, ${value})::keyed_value`;
  switch (operator) {
    case 'count':
      return sql`to_jsonb(count(${value}))`;
    case 'count_distinct':
      // The instant of a date and a number are two values, which the rank tells apart.
      return fields.isDate(path)
        ? sql`to_jsonb(count(distinct row(${rank}, ${sorted})) filter (where ${value} is not null))`
        : sql`to_jsonb(count(distinct ${value}))`;
    case 'sum':
      return sql`to_jsonb(coalesce(sum(${number}), 0))`;
    case 'avg':
      return sql`to_jsonb(average_of(sum(${number}), count(${number})))`;
    case 'min':
      return sql`(first_value_of(${extreme}) filter (where ${value} is not null)).value`;
    case 'max':
      return sql`(last_value_of(${extreme}) filter (where ${value} is not null)).value`;
    case 'first':
      return sql`(first_value_of(${placed(fields, fields.textValue(path))})).value #>> '{}'`;
    case 'last':
      return sql`(last_value_of(${placed(fields, fields.textValue(path))})).value #>> '{}'`;
  }
}

/** A text with the place of its row: that of the document of the base, then the ids of its partners. */
function placed(fields: ViewFields, text: Sql): Sql {
  const { row } = fields.source.alias;
  const place = sql`jsonb_build_array(${join([sql`${row}.place`, ...fields.partnerIds], ', ')})`;
  return sql`row(${row}.ordinal, ${place}, to_jsonb(${text}))::keyed_value`;
}
