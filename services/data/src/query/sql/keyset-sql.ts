import { empty, join, named, sql, trusted, type Sql } from '@granary/shared/postgres/sql';
import { keyStringMaxBytes } from '../../values/ordered-key';
import type { Position } from '../plan/cursor';
import type { Order } from '../plan/order';
import { termPositionsOf, type TermPosition } from '../plan/term-position';
import type { Relation } from '../plan/relation';
import { isTruncatedKey, keyValue } from './key-sql';
import type { RowFields } from './row-fields';
import { descendingKey } from '../../catalog/table-names';

export const directionOf = (descending: boolean): Sql => trusted(descending ? 'desc' : 'asc');
const beyond = (descending: boolean): Sql => trusted(descending ? '<' : '>');

export const keyParameter = ({ key }: TermPosition): Sql => keyValue(key);

/** The columns that rows are sorted by for one term: the key, and for a truncated one the whole string. */
interface SortColumn {
  key: Sql;
  text: Sql;
  descending: boolean;
}

/** An order of rows that are sorted: what to join to them for it, and the parts of a statement. */
export interface SortedOrder {
  /** The SQL that follows the rows in a FROM clause. */
  lateral: Sql;
  orderBy: Sql;
  /** Which rows are behind the position where the page begins; none for the first page. */
  after: Sql[];
}

/**
 * The order of any paths: by the columns of their keys where they have one, else by keys that are made of the values.
 */
export function sortedOrder(
  source: Relation,
  fields: RowFields,
  order: Order,
  after: Position | undefined,
): SortedOrder {
  const values: Sql[] = [];
  const columns = order.terms.map(({ path, descending }): SortColumn => {
    const column = fields.keyOf(path);
    if (column) {
      const text = sql`case when ${isTruncatedKey(column)} then ${fields.rareValue(path)} #>> '{}' end collate "C"`;
      return { key: inDirection(column, descending), text, descending };
    }
    // Each value is found once, however often the order mentions it.
    const value = sql`${source.alias.sort}.${named('v', BigInt(values.length))}`;
    values.push(sql`${fields.value(path)} as ${named('v', BigInt(values.length))}`);
    const key = fields.isDate(path) ? sql`date_sort_key(${value})` : sql`sort_key(${value})`;
    const isLong = sql`jsonb_typeof(${value}) = 'string' and octet_length(${value} #>> '{}') > ${trusted(String(keyStringMaxBytes))}`;
    const text = sql`case when ${isLong} then ${value} #>> '{}' end collate "C"`;
    return { key: inDirection(key, descending), text, descending };
  });
  const direction = directionOf(order.descending);
  const ids = [sql`${fields.id} ${direction}`, ...(source.tieColumn ? [sql`${source.tieColumn} ${direction}`] : [])];
  const sorted = columns.flatMap(({ key, text, descending }) =>
    [key, text].map((part) => sql`${part} ${directionOf(descending)}`),
  );
  const behind =
    after && rowsAfter(columns, termPositionsOf(source, order, after), idAfter(source, after, order.descending));
  return {
    lateral:
      values.length === 0
        ? empty
        : sql` cross join lateral (select ${join(values, ', ')} offset 0) ${source.alias.sort}`,
    orderBy: join([...sorted, ...ids], ', '),
    after: behind ? [behind] : [],
  };
}

const inDirection = (key: Sql, descending: boolean): Sql => (descending ? descendingKey(key) : key);

/** Rows that follow a position by a term, or are equal there and follow it by what comes after. */
function rowsAfter(columns: readonly SortColumn[], positions: readonly TermPosition[], ids: Sql): Sql {
  return columns.reduceRight((then, { key, text, descending }, index) => {
    const position = positions[index]!;
    const [parameter, operator] = [keyParameter(position), beyond(descending)];
    const rest =
      position.text === undefined
        ? then
        : sql`(${text} ${operator} ${position.text} or (${text} = ${position.text} and ${then}))`;
    return sql`(${key} ${operator} ${parameter} or (${key} = ${parameter} and ${rest}))`;
  }, ids);
}

/** Rows whose id follows that of a position, whose terms are equal. */
function idAfter(source: Relation, { id, version }: Position, descending: boolean): Sql {
  const operator = beyond(descending);
  const { row } = source.alias;
  return source.tieColumn
    ? sql`(${row}.id, ${source.tieColumn}) ${operator} (${id}::text, ${version ?? '0'}::int8)`
    : sql`${row}.id ${operator} ${id}::text`;
}
