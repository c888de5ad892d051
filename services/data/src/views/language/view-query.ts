import type { Projection } from '../../json/project';
import { JsonNumber, type JsonObject, type JsonValue } from '@granary/shared/json/value';
import type { Condition } from '../../query/language/condition';
import { parseFind } from '../../query/language/filter';
import { invalidQuery, overLimit } from '../../query/language/query-error';
import { parseLimit, parseSelect, parseSortList, refuseUnknown } from '../../query/language/paging';
import { parseSort, sortFieldsMax, type SortTerm } from '../../query/language/sort';
import { columnPaths, parseGroups, type Groups } from './aggregates';
import { parseViewJoins, type ViewJoin } from './view-joins';

/** Collections that one view reads. */
export const sourcesMax = 16;

/** The parsed `query` of a view. */
export interface ViewQuery {
  base: string;
  /** The joins in their order: each may refer to those before it. */
  joins: readonly ViewJoin[];
  /** The filter of the rows, which have the members that joins add. */
  find: Condition;
  /** The select of the rows of the view, which are groups where it has some. */
  projection: Projection;
  /** Undefined: each document, or pair of a join, is a row of its own. */
  groups: Groups | undefined;
  sort: readonly SortTerm[];
  limit: number | undefined;
}

const fields = new Set(
  'find where filter select group_by groupBy aggregate join sort_by orderBy limit base'.split(' '),
);

/** Parses the `query` of a view. Throws INVALID_QUERY with the place, and LIMIT_EXCEEDED. */
export function parseViewQuery(query: JsonValue, sourceCollections: readonly string[]): ViewQuery {
  if (!(query instanceof Map)) throw invalidQuery('query', 'must be an object');
  refuseUnknown(query.keys(), fields, 'query');
  const base = parseBase(query.get('base'), sourceCollections);
  const joins = parseViewJoins(query.get('join'));
  checkSources(sourceCollections, base, joins);
  const find = parseFind(only(query, 'find', 'where', 'filter'), 'query.find');
  const groups = parseGroups(only(query, 'group_by', 'groupBy'), query.get('aggregate'));
  const sort = parseViewSort(only(query, 'sort_by', 'orderBy'));
  if (groups) refuseUnknownColumns(sort, groups);
  const limit = query.get('limit');
  return {
    base,
    joins,
    find,
    projection: rowProjection(query.get('select'), groups?.aggregates.map(({ alias }) => alias) ?? []),
    groups,
    sort,
    limit: limit === undefined || limit === null ? undefined : parseLimit(limit, 'query.limit'),
  };
}

function parseBase(value: JsonValue | undefined, sources: readonly string[]): string {
  if (sources.length === 0) throw invalidQuery('source_collections', 'must name a collection');
  if (sources.length > sourcesMax) throw overLimit('source_collections', `may hold at most ${sourcesMax} collections`);
  sources.forEach((source, index) => {
    if (sources.indexOf(source) < index)
      throw invalidQuery(`source_collections[${index}]`, `names ${source} a second time`);
  });
  const base = value ?? sources[0]!;
  if (typeof base !== 'string' || !sources.includes(base)) {
    throw invalidQuery('query.base', 'must be one of source_collections');
  }
  return base;
}

/** The sources are the base and the collections that are joined, all of them and no others. */
function checkSources(sources: readonly string[], base: string, joins: readonly ViewJoin[]): void {
  for (const { alias, collection } of joins) {
    if (sources.includes(collection)) continue;
    throw invalidQuery(`query.join.${alias}.collection`, `must be one of source_collections: ${collection}`);
  }
  sources.forEach((source, index) => {
    if (source === base || joins.some(({ collection }) => collection === source)) return;
    throw invalidQuery(`source_collections[${index}]`, `is neither the base of the query nor joined: ${source}`);
  });
}

/** The member under one of its names. */
function only(query: JsonObject, ...names: string[]): JsonValue | undefined {
  const usedNames = names.filter((name) => query.has(name));
  if (usedNames.length > 1)
    throw invalidQuery(`query.${usedNames[1]}`, `means the same as ${usedNames[0]}: give one of them`);
  return usedNames[0] === undefined ? undefined : query.get(usedNames[0]);
}

function refuseUnknownColumns(sort: readonly SortTerm[], groups: Groups): void {
  const columnNames = new Set(columnPaths(groups).map((path) => path.join('.')));
  for (const { path } of sort) {
    const name = path.join('.');
    if (!columnNames.has(name)) throw invalidQuery('query.sort_by', `names no column of the view: ${name}`);
  }
}

/** `sort_by` as text, a list of fields, or an object of fields with asc, desc, ascending, descending, 1 or -1. */
function parseViewSort(value: JsonValue | undefined): SortTerm[] {
  if (!(value instanceof Map)) return parseSortList(value, 'query.sort_by');
  if (value.size > sortFieldsMax) throw overLimit('query.sort_by', `may hold at most ${sortFieldsMax} fields`);
  return [...value].flatMap(([name, direction]) => {
    const word = direction instanceof JsonNumber ? direction.text : direction;
    const descends = word === 'desc' || word === 'descending' || word === '-1';
    if (!descends && word !== 'asc' && word !== 'ascending' && word !== '1') {
      throw invalidQuery(`query.sort_by.${name}`, 'must be asc or desc');
    }
    return parseSort([name], `query.sort_by.${name}`).map(({ path }) => ({ path, descending: descends }));
  });
}

/** The select of a view whose rows have these aggregates. Throws INVALID_QUERY. */
export const rowProjection = (select: JsonValue | undefined, aliases: readonly string[]): Projection =>
  parseSelect(withAliases(select, aliases), 'query.select');

/** A select that names what to keep means fields; the aggregates, which have their names elsewhere, stay. */
function withAliases(select: JsonValue | undefined, aliases: readonly string[]): JsonValue {
  if (select === undefined || select === null || aliases.length === 0) return select ?? null;
  const names = typeof select === 'string' ? select.split(',').map((name) => name.trim()) : select;
  if (Array.isArray(names)) {
    const isEmpty = names.every((name) => name === '');
    return isEmpty ? null : [...names, ...aliases.filter((alias) => !names.includes(alias))];
  }
  const keeps = names instanceof Map && names.size > 0 && [...names.values()].some((value) => value !== false);
  if (!keeps || !(names instanceof Map)) return names;
  return new Map([...names, ...aliases.filter((alias) => !names.has(alias)).map((alias) => [alias, true] as const)]);
}
