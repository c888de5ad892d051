import type { JsonValue } from '@granary/shared/json/value';
import type { Projection } from '@granary/shared/json/project';
import { parseLimit, parseSelect, parseSortList, refuseUnknown } from '../query/language/paging';
import type { Condition } from '../query/language/condition';
import { parseFind } from '../query/language/filter';
import { parseName } from '../query/language/path';
import { invalidQuery, overLimit } from '../query/language/query-error';
import type { SortTerm } from '../query/language/sort';
import { isOperator } from '../query/language/value-operators';

export const parametersMax = 64;
const baseQueryFields = new Set(['find', 'select', 'sort', 'limit']);
const parameterFields = new Set(['name', 'field_path', 'default', 'required', 'description']);
/** URL parameters of every execution; a query cannot declare a parameter with one of these names. */
const reservedParameters = new Set(['limit', 'offset', 'count', 'cursor']);

export interface BaseQuery {
  find: Condition;
  projection: Projection;
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
    find: parseFind(value.get('find'), 'base_query.find'),
    projection: parseSelect(value.get('select'), 'base_query.select'),
    sort: parseSortList(value.get('sort'), 'base_query.sort'),
    limit: limit === undefined || limit === null ? undefined : parseLimit(limit, 'base_query.limit'),
  };
}

/** `[{name, field_path, default?, required?, description?}]`. Throws INVALID_QUERY, LIMIT_EXCEEDED. */
export function parseParameters(value: JsonValue): Map<string, QueryParameter> {
  if (!Array.isArray(value)) throw invalidQuery('parameters', 'must be an array');
  if (value.length > parametersMax) throw overLimit('parameters', `may hold at most ${parametersMax} parameters`);
  const parameters = new Map<string, QueryParameter>();
  value.forEach((entry, index) => {
    const at = `parameters[${index}]`;
    if (!(entry instanceof Map)) throw invalidQuery(at, 'must be an object');
    refuseUnknown(entry.keys(), parameterFields, at);
    const name = entry.get('name');
    if (typeof name !== 'string' || name === '') throw invalidQuery(`${at}.name`, 'must be text');
    if (reservedParameters.has(name)) throw invalidQuery(`${at}.name`, 'is reserved');
    if (parameters.has(name)) throw invalidQuery(`${at}.name`, 'is used twice');
    const path = entry.get('field_path');
    if (typeof path !== 'string') throw invalidQuery(`${at}.field_path`, 'must be the path of a field');
    const required = entry.get('required') ?? false;
    if (typeof required !== 'boolean') throw invalidQuery(`${at}.required`, 'must be true or false');
    const target = parseName(path, `${at}.field_path`);
    const fallback = entry.get('default') ?? undefined;
    // A default that its operator does not accept is refused now instead of at each execution.
    if (fallback !== undefined && typeof fallback !== 'string') {
      (target.operator ?? isOperator).parse(target.path, fallback, `${at}.default`);
    }
    parameters.set(name, { name, target, fallback, isRequired: required });
  });
  return parameters;
}

/** A predefined query as it is executed. */
export interface PredefinedQuery extends BaseQuery {
  isPrivate: boolean;
  /** Although its source is private it is public. */
  showsPrivate: boolean;
  sourceCollection: string;
  parameters: ReadonlyMap<string, QueryParameter>;
}
