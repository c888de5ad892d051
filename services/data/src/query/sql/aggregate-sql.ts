import { join, named, sql, type Sql } from '@granary/shared/postgres/sql';
import { Compiler } from './filter-sql';
import type { Path } from '../language/condition';
import { directionOf } from './keyset-sql';
import { sortedRows } from './page-sql';
import type { Relation } from '../plan/relation';
import type { Aggregate, ViewQuery } from '../language/view-query';

/** A statement that gives the rows of a view in its order: one column, `body`, JSON text. */
export function viewRows(source: Relation, query: ViewQuery): Sql {
  const limit = query.limit === undefined ? sql`` : sql`limit ${query.limit}`;
  if (query.groups) return sql`${groupedRows(source, query, query.groups)} ${limit}`;
  const { from, where, order } = sortedRows(source, query.find, query.sort);
  return sql`select t.body from ${from} ${where} order by ${order} ${limit}`;
}

/**
 * One row for each group: columns c0, c1, … hold the values of the groups, then the aggregates, as jsonb. Groups are
 * formed by the value of JSON, so that 1 and 1.0 are one.
 */
function groupedRows(source: Relation, query: ViewQuery, groups: NonNullable<ViewQuery['groups']>): Sql {
  const compiler = new Compiler(source);
  const where = compiler.where(query.find);
  const column = (at: number): Sql => named('c', BigInt(at));
  const values = [
    ...groups.by.map((path) => sql`coalesce(${compiler.value(path)}, 'null'::jsonb)`),
    ...groups.aggregates.map((aggregate) => aggregateValue(compiler, aggregate)),
  ];
  const paths: Path[] = [...groups.by, ...groups.aggregates.map(({ alias }) => [alias])];
  const columns = values.map((value, at) => sql`${value} as ${column(at)}`);
  const numbers = groups.by.map((_, at) => named('', BigInt(at + 1)));
  const groupBy = numbers.length === 0 ? sql`` : sql`group by ${join(numbers, ', ')}`;

  const order = query.sort.map(({ path, descending }) => {
    const at = paths.findIndex((known) => known.join('.') === path.join('.'));
    return orderOf(sortable(column(at)), descending);
  });
  // The groups decide between equals, so that the same documents always give the same rows.
  groups.by.forEach((_, at) => order.push(orderOf(sortable(column(at)), query.sort.at(-1)?.descending ?? false)));
  const orderBy = order.length === 0 ? sql`` : sql`order by ${join(order, ', ')}`;
  const text = jsonText(paths, (at) => sql`coalesce(${column(at)}, 'null'::jsonb)::text`);
  return sql`
    select ${text} as body
    from (select ${join(columns, ', ')} from ${compiler.records()} ${where} ${groupBy}) g ${orderBy}`;
}

/** The order by one value: strings, numbers, booleans, arrays, objects or the reverse; null last either way. */
function orderOf(value: Sql, descending: boolean): Sql {
  const direction = directionOf(descending);
  return sql`${value} is null, sort_rank(${value}) ${direction}, ${value} ${direction}`;
}

const sortable = (column: Sql): Sql => sql`nullif(g.${column}, 'null'::jsonb)`;

function aggregateValue(compiler: Compiler, { operator, path }: Aggregate): Sql {
  if (path === undefined) return sql`to_jsonb(count(*))`;
  const value = sql`nullif(${compiler.value(path)}, 'null'::jsonb)`;
  // Anything but a number would be an error, and Postgres may look at the argument before the filter.
  const isNumber = sql`jsonb_typeof(${compiler.value(path)}) = 'number'`;
  const number = sql`case when ${isNumber} then ${compiler.value(path)}::numeric end`;
  const placed = sql`row(t.ordinal, to_jsonb(t.place), ${value})::keyed_value`;
  const { rank, value: sorted } = compiler.sortValue(path);
  const ranked = sql`row(${rank}, ${sorted}, ${value})::keyed_value`;
  switch (operator) {
    case 'count':
      return sql`to_jsonb(count(${value}))`;
    case 'count_distinct':
      return sql`to_jsonb(count(distinct ${sorted}))`;
    case 'sum':
      return sql`to_jsonb(coalesce(sum(${number}), 0))`;
    case 'avg':
      return sql`to_jsonb(average_of(sum(${number}), count(${number})))`;
    case 'min':
      return sql`(first_value_of(${ranked}) filter (where ${value} is not null)).value`;
    case 'max':
      return sql`(last_value_of(${ranked}) filter (where ${value} is not null)).value`;
    case 'first':
      return sql`(first_value_of(${placed})).value`;
    case 'last':
      return sql`(last_value_of(${placed})).value`;
  }
}

interface Node {
  column: number | undefined;
  members: Map<string, Node>;
}

/** JSON text of an object in which each path has the text of its column; dotted paths give nested objects. */
function jsonText(paths: readonly Path[], columnText: (at: number) => Sql): Sql {
  const root: Node = { column: undefined, members: new Map() };
  paths.forEach((path, at) => {
    let node = root;
    for (const step of path) {
      let next = node.members.get(step);
      if (!next) node.members.set(step, (next = { column: undefined, members: new Map() }));
      node = next;
    }
    node.column = at;
  });
  const parts: Sql[] = [];
  let literal = '';
  const write = (node: Node): void => {
    if (node.column !== undefined) {
      parts.push(sql`${literal}::text`, columnText(node.column));
      literal = '';
      return;
    }
    literal += '{';
    let separator = '';
    for (const [step, member] of node.members) {
      literal += `${separator}${JSON.stringify(step)}:`;
      separator = ',';
      write(member);
    }
    literal += '}';
  };
  write(root);
  parts.push(sql`${literal}::text`);
  return join(parts, ' || ');
}
