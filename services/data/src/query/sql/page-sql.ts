import { empty, join, named, sql, trusted, type Sql } from '@granary/shared/postgres/sql';
import type { Condition } from '../language/condition';
import { orderingIndex, type OrderingIndex } from '../plan/index-selection';
import { orderOfPage, type Order, type PageRequest } from '../plan/order';
import type { Relation } from '../plan/relation';
import { Compiler } from './filter-sql';
import { indexScan, type IndexOrder, type IndexPlace, type IndexScan } from './index-order-sql';
import { keyText } from './key-sql';
import { directionOf, isTruncatedKey, keyParameter, placesOf, sortedOrder } from './keyset-sql';
import { descendingKey } from '../../catalog/table-names';
import type { SortTerm } from '../language/sort';

/** A statement for a page of texts: rows of `body`, and of `truncated` where `sorted` is given. */
export interface PageStatement {
  statement: Sql;
  /** The same page where a row says that its key is truncated: then keys do not tell its place. */
  sorted: (() => Sql) | undefined;
}

/** The page by the keys of an index where that gives the order, by sorting the matches otherwise. */
export function pageStatement(source: Relation, page: PageRequest): PageStatement {
  const order = orderOfPage(source, page);
  const index = orderingIndex(source, page.find, order);
  if (!index) return { statement: sortedPage(source, page), sorted: undefined };
  const sorted = () => sortedIndexPage(source, page, order, index);
  if (placesOf(source, order).some(({ text }) => text !== undefined)) {
    return { statement: sorted(), sorted: undefined };
  }
  return { statement: indexPage(source, page, order, index), sorted };
}

/** Any order of any paths: the matches are sorted, the best `limit + offset` of them kept at a time. */
export function sortedPage(source: Relation, page: PageRequest): Sql {
  const { from, where, order } = ordered(source, page.find, orderOfPage(source, page));
  // Where the text of a record does not tell its place, the row does.
  const place = source.tieColumn
    ? sql`, t.id, ${source.tieColumn}::text as version`
    : source.hasIdColumn
      ? empty
      : sql`, t.id`;
  return sql`select t.body${place} from ${from} ${where} order by ${order} limit ${page.limit} offset ${page.offset}`;
}

/** The parts of a statement that gives the matching rows, aliased t, in order. */
export function sortedRows(
  source: Relation,
  find: Condition,
  sort: readonly SortTerm[],
): { from: Sql; where: Sql; order: Sql } {
  return ordered(source, find, orderOfPage(source, { find, sort }));
}

/** The matching rows in an order, behind its place. */
function ordered(source: Relation, find: Condition, wanted: Order) {
  const compiler = new Compiler(source);
  const { lateral, orderBy, after } = sortedOrder(source, compiler, wanted);
  const where = compiler.where(find, ...after);
  return { from: sql`${compiler.records()}${lateral}`, where, order: orderBy };
}

const indexOrderOf = ({ fixed, free }: OrderingIndex, { descending }: Order): IndexOrder => ({
  fixed: fixed.map(({ column, key }) => ({ column, key: sql`${keyText(key)}::bytea` })),
  free,
  descending,
});

/** The page as an index gives it, each row with whether a key of it is truncated. */
function indexPage(source: Relation, page: PageRequest, order: Order, index: OrderingIndex): Sql {
  const keys = placesOf(source, order).map(keyParameter);
  const operator = order.descending ? '<' : '>';
  const { after } = order;
  return indexScan({
    order: indexOrderOf(index, order),
    rows: matching(source, page.find),
    select: [
      { name: trusted('body'), value: sql`t.body` },
      { name: trusted('truncated'), value: join(index.free.map(isTruncatedKey), ' or ') },
    ],
    behind: after && ((branch) => branch.compare(operator, { keys, id: sql`${after.id}::text` })),
    limit: sql`${page.limit}::int8`,
    offset: sql`${page.offset}::int8`,
  });
}

const matching =
  (source: Relation, find: Condition) =>
  (...conditions: Sql[]): Sql => {
    const compiler = new Compiler(source);
    const where = compiler.where(find, ...conditions);
    return sql`from ${compiler.records()} ${where}`;
  };

/**
 * The same page where keys of it are truncated: as many rows as the page needs are read in the order of the keys, then
 * all others that have the same keys as the last of them up to its first truncated one, for these may come before it.
 * What is sorted are those rows alone.
 */
function sortedIndexPage(source: Relation, page: PageRequest, order: Order, index: OrderingIndex): Sql {
  const needed = page.limit + page.offset;
  const rows = rowsBehind(source, page.find, order, index);
  const select = [
    ...[trusted('id'), trusted('body')].map((name) => ({ name, value: sql`t.${name}` })),
    ...index.free.map((column, at) => ({ name: keyName(at), value: column })),
  ];
  const begin = order.after ? startOf(source, order) : undefined;
  const operator = `${order.descending ? '<' : '>'}${begin?.id ? '' : '='}` as const;
  const inKeyOrder = indexScan({
    order: indexOrderOf(index, order),
    rows,
    select,
    behind: begin && ((branch) => branch.compare(operator, begin)),
    limit: sql`${needed}::int8`,
    offset: sql`0::int8`,
  });
  const direction = directionOf(order.descending);
  const keyOrder = index.free.map((_, at) => {
    const name = keyName(at);
    return sql`${order.descending ? descendingKey(name) : name} ${direction}`;
  });
  const columns = join(
    select.map(({ name, value }) => sql`${value} as ${name}`),
    ', ',
  );
  const others = index.free.map((_, at) => sql`select ${columns} ${rows(...sameAsLast(index, at))}`);
  const found = keyedSource(source, order);
  const sorted = sortedOrder(found, new Compiler(found), { ...order, after: undefined });
  return sql`
    with key_order as materialized (${inKeyOrder}),
    last as materialized (
      select * from key_order order by ${join([...keyOrder, sql`id ${direction}`], ', ')} limit 1 offset ${needed - 1}),
    found as (select * from key_order union all ${join(others, ' union all ')})
    select t.body from found t order by ${sorted.orderBy} limit ${page.limit} offset ${page.offset}`;
}

/** FROM and WHERE of the matches that fulfil some conditions too, and are not before the place where the page begins. */
function rowsBehind(source: Relation, find: Condition, order: Order, index: OrderingIndex): IndexScan['rows'] {
  const places = order.after ? placesOf(source, order) : [];
  const truncated = places.findIndex(({ text }) => text !== undefined);
  return (...conditions) => {
    const compiler = new Compiler(source);
    if (truncated >= 0) {
      const { after } = sortedOrder(source, compiler, order);
      const isSame = sql`${index.free[truncated]!} = ${keyParameter(places[truncated]!)}`;
      // Postgres is not to look for the rows by this: it is for those with the truncated key of the place.
      conditions.push(sql`case when ${isSame} then ${after[0]!} else true end`);
    }
    const where = compiler.where(find, ...conditions);
    return sql`from ${compiler.records()} ${where}`;
  };
}

/** Other rows with the keys of the last one up to that column, if that is the first that is truncated. */
function sameAsLast(index: OrderingIndex, truncatedAt: number): Sql[] {
  const upTo = index.free.slice(0, truncatedAt + 1);
  const isFirst = upTo.map((_, at) =>
    at < truncatedAt ? sql`not ${isTruncatedKey(keyName(at))}` : isTruncatedKey(keyName(at)),
  );
  return [
    ...upTo.map((column, at) => sql`${column} = (select ${keyName(at)} from last)`),
    sql`(select ${join(isFirst, ' and ')} from last)`,
    sql`not exists (select from key_order k where k.id = t.id)`,
  ];
}

const keyName = (at: number): Sql => named('f', BigInt(at));

/** Rows that have nothing but ids, texts, and the keys of an order. */
const keyedSource = (source: Relation, { terms }: Order): Relation => ({
  ...source,
  keys: new Map(terms.map(({ path }, at) => [path.join('.'), sql`t.${keyName(at)}`])),
});

/** Where the page begins in the order of the keys: those up to the first that is truncated. */
function startOf(source: Relation, order: Order): IndexPlace {
  const places = placesOf(source, order);
  const truncated = places.findIndex(({ text }) => text !== undefined);
  return truncated < 0
    ? { keys: places.map(keyParameter), id: sql`${order.after!.id}::text` }
    : { keys: places.slice(0, truncated + 1).map(keyParameter), id: undefined };
}
