import type { JsonValue } from '@granary/shared/json/value';
import { limitMax, numberOfText, parseLimit, parseSortList, refuseUnknown } from '../query/language/paging';
import { parseFindAndSelect, type FindAndSelect } from '../query/language/joined-query';
import { parseName } from '../query/language/path';
import { invalidQuery, overLimit } from '../query/language/query-error';
import type { ReadPrice } from '../catalog/read-price';
import type { SortTerm } from '../query/language/sort';
import { isOperator } from '../query/language/value-operators';

export const parametersMax = 64;
const baseQueryFields = new Set(['find', 'select', 'sort', 'limit']);
const parameterFields = new Set(['name', 'field_path', 'default', 'required', 'description']);
/** URL parameters of every execution; a query cannot declare a parameter with one of these names. */
const reservedParameters = new Set(['limit', 'offset', 'count', 'cursor', 'version']);
/** The `field_path` that stands for the limit of the page. A field of this name is reached as `limit.$eq`. */
const limitPath = 'limit';

export interface BaseQuery extends FindAndSelect {
  sort: SortTerm[];
  limit: number | undefined;
}

export interface QueryParameter {
  name: string;
  target: ReturnType<typeof parseName>;
  /** Used where the URL has no value; undefined where the condition is then left out. */
  fallback: JsonValue | undefined;
  isRequired: boolean;
}

/** `{find, select, sort, limit}`. Throws INVALID_QUERY, LIMIT_EXCEEDED. */
export function parseBaseQuery(value: JsonValue): BaseQuery {
  if (!(value instanceof Map)) throw invalidQuery('base_query', 'must be an object');
  refuseUnknown(value.keys(), baseQueryFields, 'base_query');
  const limit = value.get('limit');
  return {
    ...parseFindAndSelect(value.get('find'), value.get('select'), {
      find: 'base_query.find',
      select: 'base_query.select',
    }),
    sort: parseSortList(value.get('sort'), 'base_query.sort'),
    limit: limit === undefined || limit === null ? undefined : parseLimit(limit, 'base_query.limit'),
  };
}

/** The parameter that sets the limit of the page. */
export interface LimitParameter {
  name: string;
  fallback: number | undefined;
  isRequired: boolean;
}

export interface QueryParameters {
  filters: ReadonlyMap<string, QueryParameter>;
  limit: LimitParameter | undefined;
}

/**
 * `[{name, field_path, default?, required?, description?}]` of a query whose pages have at most `pageMax` records.
 * Throws INVALID_QUERY, LIMIT_EXCEEDED.
 */
export function parseParameters(value: JsonValue, pageMax: number | undefined): QueryParameters {
  if (!Array.isArray(value)) throw invalidQuery('parameters', 'must be an array');
  if (value.length > parametersMax) throw overLimit('parameters', `may hold at most ${parametersMax} parameters`);
  const filters = new Map<string, QueryParameter>();
  let limit: LimitParameter | undefined;
  value.forEach((entry, index) => {
    const entryPath = `parameters[${index}]`;
    if (!(entry instanceof Map)) throw invalidQuery(entryPath, 'must be an object');
    refuseUnknown(entry.keys(), parameterFields, entryPath);
    const name = entry.get('name');
    if (typeof name !== 'string' || name === '') throw invalidQuery(`${entryPath}.name`, 'must be text');
    if (filters.has(name) || limit?.name === name) throw invalidQuery(`${entryPath}.name`, 'is used twice');
    const path = entry.get('field_path');
    if (typeof path !== 'string') throw invalidQuery(`${entryPath}.field_path`, 'must be the path of a field');
    const required = entry.get('required') ?? false;
    if (typeof required !== 'boolean') throw invalidQuery(`${entryPath}.required`, 'must be true or false');
    const fallback = entry.get('default') ?? undefined;
    if (path === limitPath) {
      if (limit) throw invalidQuery(`${entryPath}.field_path`, 'is used twice: a page has one limit');
      limit = { name, fallback: limitFallback(fallback, pageMax, `${entryPath}.default`), isRequired: required };
      return;
    }
    const target = parseName(path, `${entryPath}.field_path`);
    // A default that its operator does not accept is refused now instead of at each execution.
    if (fallback !== undefined && typeof fallback !== 'string') {
      (target.operator ?? isOperator).parse(target.path, fallback, `${entryPath}.default`);
    }
    filters.set(name, { name, target, fallback, isRequired: required });
  });
  return { filters, limit };
}

/** The names that a new query may not use. Older queries may, so this is no part of `parseParameters`. */
export function refuseReservedNames({ filters }: QueryParameters): void {
  for (const name of filters.keys()) {
    if (reservedParameters.has(name)) throw invalidQuery('parameters', `names a parameter ${name}, which is reserved`);
  }
}

function limitFallback(value: JsonValue | undefined, pageMax: number | undefined, path: string): number | undefined {
  if (value === undefined) return undefined;
  return parsePageLimit(typeof value === 'string' ? numberOfText(value) : value, pageMax, path);
}

/** A limit of at most what the query allows; undefined is the query's own. Throws INVALID_QUERY, LIMIT_EXCEEDED. */
export function parsePageLimit(value: JsonValue | undefined, pageMax: number | undefined, path: string): number {
  const limit = parseLimit(value, path, pageMax);
  if (limit > (pageMax ?? limitMax)) throw overLimit(path, `may be at most ${pageMax} for this query`);
  return limit;
}

/** A predefined query as it is executed. */
export interface PredefinedQuery extends BaseQuery {
  isPrivate: boolean;
  /** Although its source is private it is public. */
  showsPrivate: boolean;
  /** The joined collections that it shows although they are private. */
  shownCollections: ReadonlySet<string>;
  sourceCollection: string;
  parameters: QueryParameters;
  /** Its own price, empty where it is free; undefined: those of what it reads. */
  readPrices: readonly ReadPrice[] | undefined;
  /** The revision of the app's catalog that this shows. */
  revision: bigint;
}
