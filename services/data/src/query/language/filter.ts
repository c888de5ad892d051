import { notImplemented } from '@granary/shared/errors';
import type { JsonObject, JsonValue } from '@granary/shared/json/value';
import { all, and, isAll, type Condition, type Path } from './condition';
import type { Operator, References } from './operator';
import { isOperatorName, operatorOf } from './operators';
import { allJoins, assertDistinct, assertJoinLimits, isJoin, makeJoin, parseJoinParts, type Join } from './joins';
import { assertSteps, parseName } from './path';
import { invalidQuery, overLimit } from './query-error';
import { assertExpressions } from './regexp-operators';
import { isReference, noReferences, ParentReferences } from './reference';
import { isOperator } from './value-operators';

/** Levels of objects and arrays in a `find`; its own object is the first. */
export const findDepthMax = 16;
export const conditionsMax = 256;

const logicals = new Map<string, 'and' | 'or' | 'none'>([
  ['and', 'and'],
  ['$and', 'and'],
  ['or', 'or'],
  ['$or', 'or'],
  ['not', 'none'],
  ['$not', 'none'],
]);

/** A parsed `find` with the joins beside its conditions. */
export interface Query {
  find: Condition;
  joins: readonly Join[];
  /** How many conditions it has, those of its joins too. */
  conditionCount: number;
}

/** The place of a condition in a query. */
interface Scope {
  /** How much of the limits of the query has been used. */
  used: { conditions: number; joins: number };
  /** How many joins are around it. */
  level: number;
  references: References;
  /** The joins of the same `find`; undefined where none can stand. */
  joins: Array<{ join: Join; references: ParentReferences }> | undefined;
}

/**
 * Parses a `find` without joins; undefined and null match everything. The messages call it `location`. Throws
 * INVALID_QUERY, LIMIT_EXCEEDED, or NOT_IMPLEMENTED for joins and for the operators that are still to come.
 */
export function parseFind(find: JsonValue | undefined, location = 'find'): Condition {
  const { find: condition, joins } = parseQuery(find, location);
  if (joins.length > 0) throw notImplemented('a join (resolve)');
  return condition;
}

/** Parses a `find` and the joins in it. Throws INVALID_QUERY, LIMIT_EXCEEDED. */
export function parseQuery(find: JsonValue | undefined, location = 'find'): Query {
  const used = { conditions: 0, joins: 0 };
  const query = { ...parseLevel(find, location, { used, level: 0, references: noReferences }), conditionCount: 0 };
  query.conditionCount = used.conditions;
  withConditions(query, [], location);
  return query;
}

/**
 * The `find` of a query with conditions from elsewhere, such as parameters of a URL. Throws LIMIT_EXCEEDED where the
 * query has then too many conditions or regular expressions, those of its joins among them.
 */
export function withConditions(query: Query, more: readonly Condition[], location: string): Condition {
  if (query.conditionCount + more.length > conditionsMax) {
    throw overLimit(location, `makes more than the ${conditionsMax} conditions that a query may have`);
  }
  const find = isAll(query.find) ? and(...more) : and(query.find, ...more);
  assertExpressions(and(find, ...allJoins(query.joins).map((join) => join.find)), location);
  return find;
}

/** A `find` of the query or of a join. */
function parseLevel(
  find: JsonValue | undefined,
  location: string,
  around: Omit<Scope, 'joins'>,
): Pick<Query, 'find' | 'joins'> {
  if (find === undefined || find === null) return { find: all, joins: [] };
  if (!(find instanceof Map)) throw invalidQuery(location, 'must be an object');
  if (isDeeper(find, findDepthMax)) throw overLimit(location, `may be at most ${findDepthMax} levels deep`);
  const joins: NonNullable<Scope['joins']> = [];
  const condition = parseObject(find, [], location, { ...around, joins });
  assertDistinct(joins);
  return { find: condition, joins: joins.map(({ join }) => join) };
}

function parseJoin(alias: string, value: JsonObject, location: string, scope: Scope): void {
  if (!scope.joins) throw invalidQuery(location, 'is a join, which can stand only beside the conditions of a find');
  const { used } = scope;
  const level = scope.level + 1;
  used.joins += 1;
  assertJoinLimits(used.joins, level, location);
  const parts = parseJoinParts(alias, value, location);
  const references = new ParentReferences();
  const { find, joins } = parseLevel(parts.find, `${location}.resolve.find`, { used, level, references });
  scope.joins.push({ join: makeJoin(parts, find, joins), references });
}

/** Each `find` has its own depth, so those of joins do not count. */
function isDeeper(value: JsonValue, levels: number): boolean {
  if (!(value instanceof Map) && !Array.isArray(value)) return false;
  if (isJoin(value)) return false;
  if (levels === 0) return true;
  for (const member of value.values()) if (isDeeper(member, levels - 1)) return true;
  return false;
}

/** The conditions of an object: on the fields below `path`, or operators on `path` itself. */
function parseObject(find: JsonObject, path: Path, location: string, scope: Scope): Condition {
  const conditions: Condition[] = [];
  let [hasOperators, hasFields] = [false, false];
  for (const [key, value] of find) {
    const place = `${location}.${key}`;
    if (isJoin(value) && !logicals.has(key) && !isOperatorName(key)) {
      parseJoin(key, value, place, path.length === 0 ? scope : { ...scope, joins: undefined });
      hasFields = true;
      continue;
    }
    const logical = logicals.get(key);
    if (logical !== undefined) {
      conditions.push({ kind: logical, conditions: parseList(value, path, place, inLogical(scope, logical)) });
      continue;
    }
    if (isOperatorName(key) || (key.startsWith('$') && !key.includes('.'))) {
      if (path.length === 0)
        throw invalidQuery(place, `is an operator without a field; the field of this name is ${key}.$eq`);
      hasOperators = true;
      conditions.push(parseCondition(operatorOf(key, place), path, value, place, scope));
    } else {
      hasFields = true;
      conditions.push(parseField(key, path, value, place, scope));
    }
    if (hasOperators && hasFields) throw invalidQuery(location, 'mixes operators and fields in one object');
  }
  return conditions.length === 1 ? conditions[0]! : { kind: 'and', conditions };
}

/** Joins may stand in what all holds, for they filter nothing. */
const inLogical = (scope: Scope, logical: 'and' | 'or' | 'none'): Scope =>
  logical === 'and' ? scope : { ...scope, joins: undefined };

function parseList(value: JsonValue, path: Path, location: string, scope: Scope): Condition[] {
  if (!Array.isArray(value)) throw invalidQuery(location, 'must be an array of conditions');
  // A list of empty objects would else cost nothing.
  if (value.length > conditionsMax) throw overLimit(location, `may hold at most ${conditionsMax} conditions`);
  return value.map((element, index) => {
    if (!(element instanceof Map)) throw invalidQuery(`${location}[${index}]`, 'must be an object');
    if (element.size === 0) throw invalidQuery(`${location}[${index}]`, 'is empty, so it would match everything');
    return parseObject(element, path, `${location}[${index}]`, scope);
  });
}

function parseField(key: string, parent: Path, value: JsonValue, location: string, scope: Scope): Condition {
  const { path: steps, operator } = parseName(key, location);
  const path = [...parent, ...steps];
  assertSteps(path, location);
  if (operator !== undefined) return parseCondition(operator, path, value, location, scope);
  if (Array.isArray(value))
    throw invalidQuery(location, 'must be a value or an object of operators; "is" compares with an array');
  if (!(value instanceof Map)) return parseCondition(isOperator, path, value, location, scope);
  if (value.size === 0) throw invalidQuery(location, 'has no operators; {"is": {}} compares with the empty object');
  return parseObject(value, path, location, scope);
}

/** A condition on one path, from an operator and its operand. */
function parseCondition(operator: Operator, path: Path, operand: JsonValue, location: string, scope: Scope): Condition {
  scope.used.conditions += 1;
  if (scope.used.conditions > conditionsMax) {
    throw overLimit(location, `is beyond the ${conditionsMax} conditions that a query may have`);
  }
  if (scope.level > 0 && !operator.takesReferences && isReference(operand)) {
    throw invalidQuery(location, 'cannot refer to another record: is, in and the comparisons can');
  }
  return operator.parse(path, operand, location, scope.references);
}
