import { notImplemented } from '@granary/shared/errors';
import type { JsonObject, JsonValue } from '@granary/shared/json/value';
import { all, type Condition, type Path } from './condition';
import type { Operator } from './operator';
import { isOperatorName, operatorOf } from './operators';
import { assertSteps, parseName } from './path';
import { invalidQuery, overLimit } from './query-error';
import { assertExpressions } from './regexp-operators';
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

/** What of the limits of one `find` has been used. */
interface Budget {
  conditions: number;
}

/**
 * Parses a `find`; undefined and null match everything. `at` is what the messages call it. Throws INVALID_QUERY,
 * LIMIT_EXCEEDED, or NOT_IMPLEMENTED for joins and for the operators that are still to come.
 */
export function parseFind(find: JsonValue | undefined, at = 'find'): Condition {
  if (find === undefined || find === null) return all;
  if (!(find instanceof Map)) throw invalidQuery(at, 'must be an object');
  if (isDeeper(find, findDepthMax)) throw overLimit(at, `may be at most ${findDepthMax} levels deep`);
  const condition = parseObject(find, [], at, { conditions: 0 });
  assertExpressions(condition, at);
  return condition;
}

function isDeeper(value: JsonValue, levels: number): boolean {
  if (!(value instanceof Map) && !Array.isArray(value)) return false;
  if (levels === 0) return true;
  for (const member of value.values()) if (isDeeper(member, levels - 1)) return true;
  return false;
}

/** The conditions of an object: on the fields below `path`, or operators on `path` itself. */
function parseObject(find: JsonObject, path: Path, at: string, budget: Budget): Condition {
  const conditions: Condition[] = [];
  let [hasOperators, hasFields] = [false, false];
  for (const [key, value] of find) {
    const place = `${at}.${key}`;
    const logical = logicals.get(key);
    if (logical !== undefined) {
      conditions.push({ kind: logical, conditions: parseList(value, path, place, budget) });
      continue;
    }
    if (isOperatorName(key) || (key.startsWith('$') && !key.includes('.'))) {
      if (path.length === 0)
        throw invalidQuery(place, `is an operator without a field; the field of this name is ${key}.$eq`);
      hasOperators = true;
      conditions.push(parseCondition(operatorOf(key, place), path, value, place, budget));
    } else {
      hasFields = true;
      conditions.push(parseField(key, path, value, place, budget));
    }
    if (hasOperators && hasFields) throw invalidQuery(at, 'mixes operators and fields in one object');
  }
  return conditions.length === 1 ? conditions[0]! : { kind: 'and', conditions };
}

function parseList(value: JsonValue, path: Path, at: string, budget: Budget): Condition[] {
  if (!Array.isArray(value)) throw invalidQuery(at, 'must be an array of conditions');
  // A list of empty objects would else cost nothing.
  if (value.length > conditionsMax) throw overLimit(at, `may hold at most ${conditionsMax} conditions`);
  return value.map((element, index) => {
    if (!(element instanceof Map)) throw invalidQuery(`${at}[${index}]`, 'must be an object');
    return parseObject(element, path, `${at}[${index}]`, budget);
  });
}

function parseField(key: string, parent: Path, value: JsonValue, at: string, budget: Budget): Condition {
  const { path: steps, operator } = parseName(key, at);
  const path = [...parent, ...steps];
  assertSteps(path, at);
  if (operator !== undefined) return parseCondition(operator, path, value, at, budget);
  if (Array.isArray(value))
    throw invalidQuery(at, 'must be a value or an object of operators; "is" compares with an array');
  if (!(value instanceof Map)) return parseCondition(isOperator, path, value, at, budget);
  if (value.has('resolve') && value.has('model')) throw notImplemented('a join (resolve)');
  return parseObject(value, path, at, budget);
}

/** A condition on one path, from an operator and its operand. */
function parseCondition(operator: Operator, path: Path, operand: JsonValue, at: string, budget: Budget): Condition {
  budget.conditions += 1;
  if (budget.conditions > conditionsMax) {
    throw overLimit(at, `is beyond the ${conditionsMax} conditions that a query may have`);
  }
  return operator.parse(path, operand, at);
}
