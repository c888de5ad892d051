import { empty, join, named, sql, trusted, type Sql } from '@granary/shared/postgres/sql';
import { readJson } from '@granary/shared/json/value';
import { isTruncated, keyStringMaxBytes, keyType, orderedKey } from '../../values/ordered-key';
import { recordDepthMax, type Position } from '../plan/cursor';
import type { Order } from '../plan/order';
import type { Relation } from '../plan/relation';
import { keyText } from './key-sql';
import type { RowFields } from './row-fields';
import { descendingKey } from '../../catalog/table-names';

export const directionOf = (descending: boolean): Sql => trusted(descending ? 'desc' : 'asc');
const beyond = (descending: boolean): Sql => trusted(descending ? '<' : '>');

const keyMaxBytes = trusted(String(1 + keyStringMaxBytes));
/** Whether a key has lost the end of its string, so that it does not tell the place of its row. */
export const isTruncatedKey = (key: Sql): Sql => sql`octet_length(${key}) > ${keyMaxBytes}`;

/** The place of a row in an order, for one of its terms. */
export interface Place {
  /** The key; in an order that descends that of missing and null is empty. */
  key: Buffer;
  /** The whole string where its key is truncated. */
  text: string | undefined;
}

/** The places of a row for the terms of an order, from the JSON texts of its values. */
export function placesOf(source: Relation, { terms }: Pick<Order, 'terms'>): Place[] {
  return terms.map(({ path, after, descending }) => {
    const value = after === null ? null : readJson(Buffer.from(after), { maxDepth: recordDepthMax });
    const key = orderedKey(value, source.dates.has(path.join('.')));
    const text = isTruncated(key) ? (value as string) : undefined;
    return { key: descending && key[0] === keyType.empty ? Buffer.alloc(0) : key, text };
  });
}

export const keyParameter = ({ key }: Place): Sql => sql`${keyText(key)}::bytea`;

/** What rows are sorted by for one term: the key, and for a truncated one the whole string. */
interface SortColumn {
  key: Sql;
  text: Sql;
  descending: boolean;
}

/** An order of rows that are sorted: what to join to them for it, and the parts of a statement. */
export interface SortedOrder {
  /** What follows the rows in a FROM clause. */
  lateral: Sql;
  orderBy: Sql;
  /** Which rows are behind the place of the order; none where it has no place. */
  after: Sql[];
}

/** The order of any paths: by the columns of their keys where they have one, else by keys that are made of the values. */
export function sortedOrder(source: Relation, fields: RowFields, order: Order): SortedOrder {
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
  const places = placesOf(source, order);
  return {
    lateral:
      values.length === 0
        ? empty
        : sql` cross join lateral (select ${join(values, ', ')} offset 0) ${source.alias.sort}`,
    orderBy: join([...sorted, ...ids], ', '),
    after: order.after ? [rowsAfter(columns, places, idAfter(source, order.after, order.descending))] : [],
  };
}

const inDirection = (key: Sql, descending: boolean): Sql => (descending ? descendingKey(key) : key);

/** Rows that follow a place by a term, or are equal there and follow it by what comes after. */
function rowsAfter(columns: readonly SortColumn[], places: readonly Place[], ids: Sql): Sql {
  return columns.reduceRight((then, { key, text, descending }, at) => {
    const place = places[at]!;
    const [parameter, operator] = [keyParameter(place), beyond(descending)];
    const rest =
      place.text === undefined
        ? then
        : sql`(${text} ${operator} ${place.text} or (${text} = ${place.text} and ${then}))`;
    return sql`(${key} ${operator} ${parameter} or (${key} = ${parameter} and ${rest}))`;
  }, ids);
}

/** Rows whose id follows that of a place, of which all else is equal. */
function idAfter(source: Relation, { id, version }: Position, descending: boolean): Sql {
  const operator = beyond(descending);
  const { row } = source.alias;
  return source.tieColumn
    ? sql`(${row}.id, ${source.tieColumn}) ${operator} (${id}::text, ${version ?? '0'}::int8)`
    : sql`${row}.id ${operator} ${id}::text`;
}
