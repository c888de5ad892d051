import { notImplemented } from '@granary/shared/errors';
import type { Projection } from '@granary/shared/json/project';
import { JsonNumber, type JsonObject, type JsonValue } from '@granary/shared/json/value';
import type { Condition, Path } from './condition';
import { parseFind } from './filter';
import { parsePath } from './path';
import { invalidQuery, overLimit } from './query-error';
import { parseLimit, parseSelect, parseSortList, refuseUnknown } from './paging';
import { parseSort, type SortTerm } from './sort';

export const groupFieldsMax = 16;
export const aggregatesMax = 64;

const aggregateOperators = ['sum', 'avg', 'min', 'max', 'count', 'count_distinct', 'first', 'last'] as const;
export type AggregateOperator = (typeof aggregateOperators)[number];

export interface Aggregate {
  alias: string;
  operator: AggregateOperator;
  /** Undefined: whole documents are counted (`"*"`). */
  path: Path | undefined;
}

/** The parsed `query` of a view over one collection. */
export interface ViewQuery {
  base: string;
  find: Condition;
  /** Of the rows that the view has, so in a grouped view of its groups. */
  projection: Projection;
  /** Undefined: each document is a row of its own. */
  groups: { by: readonly Path[]; aggregates: readonly Aggregate[] } | undefined;
  sort: readonly SortTerm[];
  limit: number | undefined;
}

const fields = new Set(
  'find where filter select group_by groupBy aggregate join sort_by orderBy limit base'.split(' '),
);

/**
 * Parses the `query` of a view. Throws INVALID_QUERY with the place, LIMIT_EXCEEDED, and NOT_IMPLEMENTED for joins and
 * for more than one collection.
 */
export function parseViewQuery(query: JsonValue, sourceCollections: readonly string[]): ViewQuery {
  if (!(query instanceof Map)) throw invalidQuery('query', 'must be an object');
  refuseUnknown(query.keys(), fields, 'query');
  if (query.get('join') !== undefined && query.get('join') !== null) throw notImplemented('a join in a view');
  if (sourceCollections.length === 0) throw invalidQuery('source_collections', 'must name a collection');
  if (sourceCollections.length > 1) throw notImplemented('a view over several collections');
  const base = query.get('base') ?? sourceCollections[0]!;
  if (typeof base !== 'string' || !sourceCollections.includes(base)) {
    throw invalidQuery('query.base', 'must be one of source_collections');
  }
  const find = parseFind(only(query, 'find', 'where', 'filter'), 'query.find');
  const groupBy = parseGroupBy(only(query, 'group_by', 'groupBy'));
  const aggregates = parseAggregates(query.get('aggregate'));
  const groups = groupBy === undefined && aggregates.length === 0 ? undefined : { by: groupBy ?? [], aggregates };
  if (groups) refuseSameColumns(groups.by, aggregates);
  const sort = parseViewSort(only(query, 'sort_by', 'orderBy'));
  if (groups) for (const { path } of sort) refuseUnknownColumn(path, groups);
  const select = query.get('select');
  const limit = query.get('limit');
  return {
    base,
    find,
    projection: parseSelect(withAliases(select, aggregates), 'query.select'),
    groups,
    sort,
    limit: limit === undefined || limit === null ? undefined : parseLimit(limit, 'query.limit'),
  };
}

/** The member under one of its names. */
function only(query: JsonObject, ...names: string[]): JsonValue | undefined {
  const given = names.filter((name) => query.has(name));
  if (given.length > 1) throw invalidQuery(`query.${given[1]}`, `means the same as ${given[0]}: give one of them`);
  return given[0] === undefined ? undefined : query.get(given[0]);
}

function parseGroupBy(value: JsonValue | undefined): Path[] | undefined {
  if (value === undefined || value === null) return undefined;
  const names = typeof value === 'string' ? value.split(',').map((name) => name.trim()) : value;
  if (!Array.isArray(names)) throw invalidQuery('query.group_by', 'must be a field or a list of fields');
  if (names.length > groupFieldsMax) throw overLimit('query.group_by', `may hold at most ${groupFieldsMax} fields`);
  const paths = names.map((name) => {
    if (typeof name !== 'string') throw invalidQuery('query.group_by', 'must hold names of fields');
    return parsePath(name, 'query.group_by');
  });
  return paths.length === 0 ? undefined : paths;
}

function parseAggregates(value: JsonValue | undefined): Aggregate[] {
  if (value === undefined || value === null) return [];
  if (!(value instanceof Map))
    throw invalidQuery('query.aggregate', 'must be an object of the form {"alias": {"$sum": "field"}}');
  if (value.size > aggregatesMax) throw overLimit('query.aggregate', `may hold at most ${aggregatesMax} aggregates`);
  return [...value].map(([alias, definition]) => parseAggregate(alias, definition, `query.aggregate.${alias}`));
}

function parseAggregate(alias: string, definition: JsonValue, at: string): Aggregate {
  if (alias === '' || alias.includes('.') || alias.startsWith('$')) {
    throw invalidQuery(at, 'must not be empty, hold a dot or begin with $');
  }
  const [entry, ...more] = definition instanceof Map ? [...definition] : [];
  if (entry === undefined || more.length > 0) throw invalidQuery(at, 'must be an object with one operator');
  const [name, field] = entry;
  const operator = aggregateOperators.find((known) => name === `$${known}`);
  if (operator === undefined) {
    throw invalidQuery(at, `must use one of ${aggregateOperators.map((known) => `$${known}`).join(', ')}`);
  }
  if (typeof field !== 'string') throw invalidQuery(at, 'must name a field');
  if (field === '*' && operator !== 'count') throw invalidQuery(at, 'must name a field: only $count takes "*"');
  return { alias, operator, path: field === '*' ? undefined : parsePath(field, at) };
}

/** No column may be another, or stand inside it. */
function refuseSameColumns(groups: readonly Path[], aggregates: readonly Aggregate[]): void {
  const columns = [...groups, ...aggregates.map(({ alias }) => [alias])];
  columns.forEach((column, index) => {
    for (const other of columns.slice(0, index)) {
      const shared = Math.min(column.length, other.length);
      if (column.slice(0, shared).every((step, at) => step === other[at])) {
        throw invalidQuery('query', `gives two columns the name ${column.join('.')}`);
      }
    }
  });
}

function refuseUnknownColumn(path: Path, groups: NonNullable<ViewQuery['groups']>): void {
  const name = path.join('.');
  const isKnown =
    groups.by.some((group) => group.join('.') === name) || groups.aggregates.some(({ alias }) => alias === name);
  if (!isKnown) throw invalidQuery('query.sort_by', `names no column of the view: ${name}`);
}

/** `sort_by` as text, a list of fields, or an object of fields with asc, desc, ascending, descending, 1 or -1. */
function parseViewSort(value: JsonValue | undefined): SortTerm[] {
  if (!(value instanceof Map)) return parseSortList(value, 'query.sort_by');
  return [...value].flatMap(([name, direction]) => {
    const word = direction instanceof JsonNumber ? direction.text : direction;
    const descends = word === 'desc' || word === 'descending' || word === '-1';
    if (!descends && word !== 'asc' && word !== 'ascending' && word !== '1') {
      throw invalidQuery(`query.sort_by.${name}`, 'must be asc or desc');
    }
    return parseSort([name], `query.sort_by.${name}`).map(({ path }) => ({ path, descending: descends }));
  });
}

/** A select that names what to keep means fields; the aggregates, which have their names elsewhere, stay. */
function withAliases(select: JsonValue | undefined, aggregates: readonly Aggregate[]): JsonValue {
  if (select === undefined || select === null || aggregates.length === 0) return select ?? null;
  const aliases = aggregates.map(({ alias }) => alias);
  const names = typeof select === 'string' ? select.split(',').map((name) => name.trim()) : select;
  if (Array.isArray(names)) {
    const isEmpty = names.every((name) => name === '');
    return isEmpty ? null : [...names, ...aliases.filter((alias) => !names.includes(alias))];
  }
  const keeps = names instanceof Map && names.size > 0 && [...names.values()].some((value) => value !== false);
  if (!keeps || !(names instanceof Map)) return names;
  return new Map([...names, ...aliases.filter((alias) => !names.has(alias)).map((alias) => [alias, true] as const)]);
}
