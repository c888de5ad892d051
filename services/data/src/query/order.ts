import { empty, join, named, sql, trusted, type Sql } from '@granary/shared/postgres/sql';
import type { JsonValue } from '@granary/shared/json/value';
import { keyBytesMax } from '../scalar';
import { Compiler } from './compile';
import { invalidQuery, overLimit, parsePath, type Condition, type Path } from './find';
import type { Source } from './source';

export const sortFieldsMax = 16;

export interface SortTerm {
  path: Path;
  descending: boolean;
}

/** Terms from names of fields, `-field` descends. Throws INVALID_QUERY. */
export function parseSort(names: readonly JsonValue[], at: string): SortTerm[] {
  if (names.length > sortFieldsMax) throw overLimit(at, `may hold at most ${sortFieldsMax} fields`);
  return names.map((name) => {
    if (typeof name !== 'string') throw invalidQuery(at, 'must hold names of fields');
    const descending = name.startsWith('-');
    return { path: parsePath(descending ? name.slice(1) : name, at), descending };
  });
}

export interface PageRequest {
  find: Condition;
  sort: readonly SortTerm[];
  limit: number;
  offset: number;
}

/** A statement for a page of texts: rows of `body` and, where `mayBeCut` is true, of `cut`. */
export interface PageStatement {
  statement: Sql;
  /** The order went by keys, so it is only right when no row says that its key may be cut. */
  mayBeCut: boolean;
}

/** The page by the keys of an index where that serves the order, by sorting the matches otherwise. */
export function pageStatement(source: Source, page: PageRequest): PageStatement {
  const [first, ...more] = page.sort;
  const key = first && more.length === 0 ? source.keys.get(first.path.join('.')) : undefined;
  return first && key
    ? { statement: pageByKey(source, page, first, key), mayBeCut: true }
    : { statement: sortedPage(source, page), mayBeCut: false };
}

const directionOf = (descending: boolean): Sql => trusted(descending ? 'desc' : 'asc');

/** Any order of any paths: the matches are sorted, the best `limit + offset` of them kept at a time. */
export function sortedPage(source: Source, page: PageRequest): Sql {
  const { from, where, order } = sortedRows(source, page.find, page.sort);
  return sql`select t.body from ${from} ${where} order by ${order} limit ${page.limit} offset ${page.offset}`;
}

/** The parts of a statement that gives the matching rows, aliased t, in order. */
export function sortedRows(
  source: Source,
  find: Condition,
  sort: readonly SortTerm[],
): { from: Sql; where: Sql; order: Sql } {
  const compiler = new Compiler(source);
  const where = compiler.where(find);
  const order: Sql[] = [];
  const values: Sql[] = [];
  let descends = false;
  for (const { path, descending } of sort) {
    descends = descending;
    // An id is unique: what follows it decides nothing.
    if (compiler.isId(path)) break;
    const column = named('s', BigInt(values.length));
    values.push(sql`${compiler.sortValue(path)} as ${column}`);
    order.push(orderOf(sql`s.${column}`, descending));
  }
  const direction = directionOf(descends);
  order.push(sql`t.id ${direction}`);
  if (source.tieColumn) order.push(sql`${source.tieColumn} ${direction}`);
  const records = compiler.records();
  // Each value is found once, however often the order mentions it.
  const from =
    values.length === 0 ? records : sql`${records} cross join lateral (select ${join(values, ', ')} offset 0) s`;
  return { from, where, order: join(order, ', ') };
}

/** The order by one value: strings, numbers, booleans, arrays, objects or the reverse; null last either way. */
export function orderOf(value: Sql, descending: boolean): Sql {
  const direction = directionOf(descending);
  return sql`${value} is null, sort_rank(${value}) ${direction}, ${value} ${direction}`;
}

/**
 * The order by one indexed field. What has a key comes in the order of the index, at most `limit + offset` rows; of
 * the rest (arrays, objects, then missing and null) no more is looked at than the page still needs. Arrays and objects
 * come before the keys when the order descends, so there they must be looked for first.
 */
function pageByKey(source: Source, page: PageRequest, term: SortTerm, key: Sql): Sql {
  const { descending } = term;
  const direction = directionOf(descending);
  const bound = page.limit + page.offset;

  const keyed = new Compiler(source);
  const keyedWhere = keyed.where(page.find, sql`${key} is not null`);
  const rest = new Compiler(source);
  const value = rest.value(term.path);
  const isCompound = sql`jsonb_typeof(${value}) in ('array', 'object')`;
  const missing = new Compiler(source);
  const missingValue = missing.value(term.path);

  // Parts are numbered in the order in which they come.
  const compoundPart = descending ? sql`-sort_rank(${value})` : sql`sort_rank(${value})`;
  const compoundWhere = rest.where(page.find, sql`${key} is null`, isCompound);
  const missingWhere = missing.where(
    page.find,
    sql`${key} is null`,
    sql`coalesce(jsonb_typeof(${missingValue}), 'null') = 'null'`,
    sql`(select count(*) from keyed) < ${bound}`,
  );
  const compoundGate = descending ? empty : sql` and (select count(*) from keyed) < ${bound}`;
  return sql`
    with keyed as materialized (
      select t.id, t.body, ${key} as k from ${keyed.records()} ${keyedWhere}
      order by ${key} ${direction}, t.id ${direction} limit ${bound})
    select p.body, p.cut from (
      select 0 as part, k as s, id, body,
        jsonb_typeof(k) = 'string' and octet_length(k #>> '{}') > ${trusted(String(keyBytesMax - 4))} as cut from keyed
      union all
      (select ${compoundPart}, ${value}, t.id, t.body, false from ${rest.records()} ${compoundWhere}${compoundGate}
       order by 1, 2 ${direction}, 3 ${direction} limit ${bound})
      union all
      (select 3, null, t.id, t.body, false from ${missing.records()} ${missingWhere}
       order by t.id ${direction} limit ${bound})
    ) p
    order by p.part, p.s ${direction}, p.id ${direction} limit ${page.limit} offset ${page.offset}`;
}
