import { empty, join, named, sql, trusted, type Sql } from '@granary/shared/postgres/sql';
import type { JsonValue } from '@granary/shared/json/value';
import { keyBytesMax } from '../../values/key';
import { always, Compiler, never } from '../sql/filter-sql';
import { idAfter, isCompound, keysAfter, mayExceedKey, rowsAfter, valueAfter, type Position } from './cursor';
import { invalidQuery, overLimit, parsePath, type Condition, type Path } from '../language/filter';
import { fixedFields, sourceFor, withKeysOf } from './index-selection';
import type { Source } from './relation';

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
  /** The page begins behind this place in its order; `offset` is 0 then. */
  after?: Position | undefined;
}

/** A statement for a page of texts: rows of `body` and, where `mayBeCut` is true, of `cut`. */
export interface PageStatement {
  statement: Sql;
  /** The order went by keys, so it is only right when no row says that its key may be cut. */
  mayBeCut: boolean;
}

/** What decides the order of the rows: values, then ids in one direction. */
interface Order {
  terms: ReadonlyArray<SortTerm & { after: string | null | undefined }>;
  descending: boolean;
  after: Position | undefined;
}

/** The sort terms that can decide anything: an id is unique, so those that follow it cannot. */
export function decidingTerms(source: Source, sort: readonly SortTerm[]): { terms: SortTerm[]; descending: boolean } {
  const at = sort.findIndex(({ path }) => source.hasIdColumn && path.length === 1 && path[0] === 'id');
  const terms = at < 0 ? [...sort] : sort.slice(0, at);
  return { terms, descending: (at < 0 ? sort.at(-1) : sort[at])?.descending ?? false };
}

function orderOfPage(source: Source, page: Pick<PageRequest, 'find' | 'sort' | 'after'>): Order {
  const { terms, descending } = decidingTerms(source, page.sort);
  // A field that the query fixes to one value decides nothing either.
  const fixed = terms.length === 0 ? new Set() : fixedFields(source, page.find);
  const placed = terms.map((term, at) => ({ ...term, after: page.after ? page.after.values[at] : undefined }));
  return { terms: placed.filter(({ path }) => !fixed.has(path.join('.'))), descending, after: page.after };
}

/** The page by the keys of an index where that serves the order, by sorting the matches otherwise. */
export function pageStatement(source: Source, page: PageRequest): PageStatement {
  const order = orderOfPage(source, page);
  const index = order.terms.some(({ after }) => mayExceedKey(after)) ? undefined : indexOf(source, page.find, order);
  if (!index) return { statement: sortedPage(source, page), mayBeCut: false };
  const keyed = withKeysOf(source, index.index);
  const statement =
    index.columns.length === 1
      ? pageByKey(keyed, page, order, index.columns[0]!)
      : pageByKeys(keyed, page, order, index.columns);
  return { statement, mayBeCut: true };
}

/** An index whose columns, but for those that the query fixes, are the order; the one with the most columns. */
function indexOf(source: Source, find: Condition, { terms, descending }: Order) {
  if (terms.length === 0 || terms.some((term) => term.descending !== descending)) return undefined;
  const wanted = terms.map(({ path }) => path.join('.'));
  const fixed = fixedFields(source, find);
  let best: { index: Source['indexes'][number]; columns: Sql[] } | undefined;
  for (const index of source.indexes) {
    const free = [...index.fields.keys()].filter((at) => !fixed.has(index.fields[at]!));
    const serves = free.length === wanted.length && free.every((at, nth) => index.fields[at] === wanted[nth]);
    if (!serves || (best && best.index.fields.length >= index.fields.length)) continue;
    best = { index, columns: free.map((at) => index.columns[at]!) };
  }
  return best;
}

export const directionOf = (descending: boolean): Sql => trusted(descending ? 'desc' : 'asc');

/** Any order of any paths: the matches are sorted, the best `limit + offset` of them kept at a time. */
export function sortedPage(source: Source, page: PageRequest): Sql {
  const { from, where, order } = ordered(sourceFor(source, page.find), page.find, orderOfPage(source, page));
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
  source: Source,
  find: Condition,
  sort: readonly SortTerm[],
): { from: Sql; where: Sql; order: Sql } {
  return ordered(sourceFor(source, find), find, orderOfPage(source, { find, sort }));
}

/** The matching rows in an order, behind its place; the values that they are sorted by are the columns s.s0, s.s1, … */
function ordered(source: Source, find: Condition, wanted: Order, ...more: Sql[]) {
  const compiler = new Compiler(source);
  const values = wanted.terms.map(({ path }) => compiler.sortValue(path));
  const columns = values.map((_, at) => sql`s.${valueColumn(at)}`);
  const after =
    wanted.after &&
    rowsAfter(
      wanted.terms.map((term, at) => ({ ...term, value: columns[at]! })),
      idAfter(source, wanted.after, wanted.descending),
    );
  const where = compiler.where(find, ...more, ...(after ? [after] : []));
  const direction = directionOf(wanted.descending);
  const order = wanted.terms.map(({ descending }, at) => orderOf(columns[at]!, descending));
  order.push(sql`t.id ${direction}`);
  if (source.tieColumn) order.push(sql`${source.tieColumn} ${direction}`);
  const records = compiler.records();
  // Each value is found once, however often the order mentions it.
  const aliased = values.map((value, at) => sql`${value} as ${valueColumn(at)}`);
  const from =
    values.length === 0 ? records : sql`${records} cross join lateral (select ${join(aliased, ', ')} offset 0) s`;
  return { from, where, order: join(order, ', ') };
}

const valueColumn = (at: number): Sql => named('s', BigInt(at));

/** The order by one value: strings, numbers, booleans, arrays, objects or the reverse; null last either way. */
export function orderOf(value: Sql, descending: boolean): Sql {
  const direction = directionOf(descending);
  return sql`${value} is null, sort_rank(${value}) ${direction}, ${value} ${direction}`;
}

const cutBytes = trusted(String(keyBytesMax - 4));
/** Whether a key may have lost the end of its string, so that it does not tell the place of its row. */
export const mayBeCut = (key: Sql): Sql =>
  sql`jsonb_typeof(${key}) = 'string' and octet_length(${key} #>> '{}') > ${cutBytes}`;

/**
 * The order by one indexed field. What has a key comes in the order of the index, at most `limit + offset` rows; of
 * the rest (arrays, objects, then missing and null) no more is looked at than the page still needs. Arrays and objects
 * come before the keys when the order descends, so there they must be looked for first.
 */
function pageByKey(source: Source, page: PageRequest, order: Order, key: Sql): Sql {
  const { descending, after } = order;
  const { path, after: text } = order.terms[0]!;
  const direction = directionOf(descending);
  const bound = page.limit + page.offset;

  const keyed = new Compiler(source);
  const keyedAfter = after ? keysAfter([key], [text ?? null], after.id, descending) : always;
  const keyedWhere = keyed.where(page.find, sql`${key} is not null`, keyedAfter);

  const rest = new Compiler(source);
  const value = rest.value(path);
  const isInside = sql`jsonb_typeof(${value}) in ('array', 'object')`;
  const compoundAfter = (): Sql => {
    if (!after) return always;
    if (isCompound(text)) return valueAfter(value, text!, descending, idAfter(source, after, descending));
    return text !== null && !descending ? always : never;
  };
  const compoundWhere = rest.where(page.find, sql`${key} is null`, isInside, compoundAfter());
  // Parts are numbered in the order in which they come.
  const compoundPart = descending ? sql`-sort_rank(${value})` : sql`sort_rank(${value})`;
  const compoundGate = descending ? empty : sql` and (select count(*) from keyed) < ${bound}`;

  const missing = new Compiler(source);
  const missingWhere = missing.where(
    page.find,
    sql`${key} is null`,
    sql`coalesce(jsonb_typeof(${missing.value(path)}), 'null') = 'null'`,
    after && text === null ? idAfter(source, after, descending) : always,
    sql`(select count(*) from keyed) < ${bound}`,
  );
  return sql`
    with keyed as materialized (
      select t.id, t.body, ${key} as k from ${keyed.records()} ${keyedWhere}
      order by ${key} ${direction}, t.id ${direction} limit ${bound})
    select p.body, p.cut from (
      select 0 as part, k as s, id, body, ${mayBeCut(sql`k`)} as cut from keyed
      union all
      (select ${compoundPart}, ${value}, t.id, t.body, false from ${rest.records()} ${compoundWhere}${compoundGate}
       order by 1, 2 ${direction}, 3 ${direction} limit ${bound})
      union all
      (select 3, null, t.id, t.body, false from ${missing.records()} ${missingWhere}
       order by ${key} ${direction}, t.id ${direction} limit ${bound})
    ) p
    order by p.part, p.s ${direction}, p.id ${direction} limit ${page.limit} offset ${page.offset}`;
}

/**
 * The order by several fields of a composite index, all in one direction. Rows in which each of them has a key come in
 * the order of the index; the others, which an index of their own holds, belong between them and are merged.
 */
function pageByKeys(source: Source, page: PageRequest, order: Order, keys: readonly Sql[]): Sql {
  const { descending, after, terms } = order;
  const direction = directionOf(descending);
  const bound = page.limit + page.offset;
  const all = (parts: readonly Sql[]): Sql => join(parts, ', ');

  const keyed = new Compiler(source);
  const texts = terms.map((term) => term.after ?? null);
  const keyedAfter = after ? keysAfter(keys, texts, after.id, descending) : always;
  const keyedWhere = keyed.where(page.find, ...keys.map((key) => sql`${key} is not null`), keyedAfter);
  const isRest = join(
    keys.map((key) => sql`${key} is null`),
    ' or ',
  );
  const rest = ordered(source, page.find, order, sql`(${isRest})`);
  const columns = keys.map((_, at) => valueColumn(at));
  const cut = join(columns.map(mayBeCut), ' or ');
  return sql`
    with keyed as materialized (
      select t.id, t.body, ${all(keys.map((key, at) => sql`${key} as ${columns[at]!}`))} from ${keyed.records()} ${keyedWhere}
      order by ${all([...keys, sql`t.id`].map((key) => sql`${key} ${direction}`))} limit ${bound})
    select p.body, p.cut from (
      select id, body, ${cut} as cut, ${all(columns)} from keyed
      union all
      (select t.id, t.body, false, ${all(columns.map((column) => sql`s.${column}`))} from ${rest.from} ${rest.where}
       order by ${rest.order} limit ${bound})
    ) p
    order by ${all(columns.map((column) => orderOf(sql`p.${column}`, descending)))}, p.id ${direction}
    limit ${page.limit} offset ${page.offset}`;
}
