import { invalid, notImplemented, type ServiceError } from '@granary/shared/errors';
import { JsonNumber, type JsonObject, type JsonValue } from '@granary/shared/json/value';
import { LIMIT_EXCEEDED } from '../../catalog/definition-limit';

export const INVALID_QUERY = 'INVALID_QUERY';

/** Levels of objects and arrays in a `find`; its own object is the first. */
export const findDepthMax = 16;
export const conditionsMax = 256;
export const listValuesMax = 1000;
export const pathStepsMax = 64;

export type Path = readonly string[];
/** What a range is bounded by: values of the same type only are compared with it. */
export type Scalar = string | JsonNumber | boolean;

export type TextMatch =
  'startsWith' | 'endsWith' | 'includesCaseInsensitive' | 'startsWithCaseInsensitive' | 'endsWithCaseInsensitive';

/** A parsed `find`. Each condition is true or false for every record. */
export type Condition =
  | { kind: 'and' | 'or' | 'none'; conditions: readonly Condition[] }
  | { kind: 'is'; path: Path; value: JsonValue }
  | { kind: 'in'; path: Path; values: readonly JsonValue[] }
  /** Missing or null. */
  | { kind: 'empty'; path: Path }
  | { kind: 'exists'; path: Path }
  | { kind: 'range'; path: Path; comparison: Comparison; bound: Scalar }
  | { kind: 'contains'; path: Path; value: JsonValue }
  | { kind: 'text'; path: Path; match: TextMatch; value: string };

export type Comparison = '<' | '<=' | '>' | '>=';

export const all: Condition = { kind: 'and', conditions: [] };
// One condition stands for itself, so that what is fixed by an equality is seen to be.
export const and = (...conditions: Condition[]): Condition =>
  conditions.length === 1 ? conditions[0]! : { kind: 'and', conditions };
export const or = (...conditions: Condition[]): Condition =>
  conditions.length === 1 ? conditions[0]! : { kind: 'or', conditions };
export const not = (condition: Condition): Condition => ({ kind: 'none', conditions: [condition] });

/** Whether a condition holds for every record, whatever is in it. */
export const isAll = (condition: Condition): boolean => condition.kind === 'and' && condition.conditions.every(isAll);

export type Operator =
  | 'is'
  | 'isNot'
  | 'in'
  | 'notIn'
  | 'isNull'
  | 'isNotNull'
  | 'exists'
  | 'greaterThan'
  | 'greaterThanOrEqual'
  | 'lessThan'
  | 'lessThanOrEqual'
  | 'between'
  | 'contains'
  | TextMatch
  | 'later';

const spellings: ReadonlyArray<readonly [Operator, string]> = [
  ['is', 'is eq $eq'],
  ['isNot', 'isNot ne $ne'],
  ['in', 'in $in'],
  ['notIn', 'notIn $nin'],
  ['isNull', 'isNull'],
  ['isNotNull', 'isNotNull'],
  ['exists', 'exists $exists'],
  ['greaterThan', 'greaterThan gt $gt'],
  ['greaterThanOrEqual', 'greaterThanOrEqual gte $gte'],
  ['lessThan', 'lessThan lt $lt'],
  ['lessThanOrEqual', 'lessThanOrEqual lte $lte'],
  ['between', 'between betweenOp $between'],
  ['contains', 'includes contains $contains'],
  ['startsWith', 'startsWith'],
  ['endsWith', 'endsWith'],
  ['includesCaseInsensitive', 'includesCaseInsensitive'],
  ['startsWithCaseInsensitive', 'startsWithCaseInsensitive'],
  ['endsWithCaseInsensitive', 'endsWithCaseInsensitive'],
  ['later', 'regExpMatches $regex CIDR cidr isLocalIp isExternalIp inCountry inDataset b64 $search'],
];

/** Every spelling of every operator. */
const operators = new Map(spellings.flatMap(([operator, names]) => names.split(' ').map((name) => [name, operator])));

const logicals = new Map<string, 'and' | 'or' | 'none'>([
  ['and', 'and'],
  ['$and', 'and'],
  ['or', 'or'],
  ['$or', 'or'],
  ['not', 'none'],
  ['$not', 'none'],
]);

const comparisons = new Map<Operator, Comparison>([
  ['greaterThan', '>'],
  ['greaterThanOrEqual', '>='],
  ['lessThan', '<'],
  ['lessThanOrEqual', '<='],
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
  return parseObject(find, [], at, { conditions: 0 });
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
    if (operators.has(key) || (key.startsWith('$') && !key.includes('.'))) {
      if (path.length === 0)
        throw invalidQuery(place, `is an operator without a field; the field of this name is ${key}.$eq`);
      hasOperators = true;
      conditions.push(parseOperator(operatorOf(key, place), path, value, place, budget));
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
  if (path.length > pathStepsMax) throw overLimit(at, `may have at most ${pathStepsMax} steps`);
  if (operator !== undefined) return parseOperator(operator, path, value, at, budget);
  if (Array.isArray(value))
    throw invalidQuery(at, 'must be a value or an object of operators; "is" compares with an array');
  if (!(value instanceof Map)) return parseOperator('is', path, value, at, budget);
  if (value.has('resolve') && value.has('model')) throw notImplemented('a join (resolve)');
  return parseObject(value, path, at, budget);
}

function operatorOf(name: string, at: string): Operator {
  const operator = operators.get(name);
  if (operator === undefined) throw invalidQuery(at, 'is not a known operator');
  if (operator === 'later') throw notImplemented(`the operator ${name}`);
  return operator;
}

/** A path as a name: dotted steps, at its end perhaps an operator (`price.$gte`). Throws INVALID_QUERY. */
export function parseName(name: string, at: string): { path: string[]; operator: Operator | undefined } {
  const steps = name.split('.');
  const last = steps.at(-1)!;
  const suffixed = steps.length > 1 && last.startsWith('$');
  if (suffixed) steps.pop();
  for (const step of steps) {
    if (step === '') throw invalidQuery(at, 'has an empty step in its path');
    if (/^-\d+$/.test(step)) throw invalidQuery(at, 'has a negative step in its path');
    if (step.startsWith('$')) throw invalidQuery(at, 'has an operator before the end of its path');
  }
  if (steps.length > pathStepsMax) throw overLimit(at, `may have at most ${pathStepsMax} steps`);
  return { path: steps, operator: suffixed ? operatorOf(last, at) : undefined };
}

/** A path as a name, without an operator. Throws INVALID_QUERY. */
export function parsePath(name: string, at: string): string[] {
  const { path, operator } = parseName(name, at);
  if (operator !== undefined) throw invalidQuery(at, 'must be a path without an operator');
  return path;
}

/** A condition on one path, from an operator and its operand. Throws INVALID_QUERY. */
export function parseOperator(
  operator: Operator,
  path: Path,
  operand: JsonValue,
  at: string,
  budget?: Budget,
): Condition {
  if (budget && ++budget.conditions > conditionsMax) {
    throw overLimit(at, `is beyond the ${conditionsMax} conditions that a query may have`);
  }
  switch (operator) {
    case 'is':
      return is(path, operand);
    case 'isNot':
      return not(is(path, operand));
    case 'in':
      return isIn(path, listOf(operand, at));
    case 'notIn':
      return not(isIn(path, listOf(operand, at)));
    case 'isNull':
      return flagOf(operand, at) ? { kind: 'empty', path } : not({ kind: 'empty', path });
    case 'isNotNull':
      return flagOf(operand, at) ? not({ kind: 'empty', path }) : { kind: 'empty', path };
    case 'exists':
      return flagOf(operand, at) ? { kind: 'exists', path } : not({ kind: 'exists', path });
    case 'greaterThan':
    case 'greaterThanOrEqual':
    case 'lessThan':
    case 'lessThanOrEqual':
      return { kind: 'range', path, comparison: comparisons.get(operator)!, bound: scalarOf(operand, at) };
    case 'between': {
      const [from, to] = boundsOf(operand, at);
      return and(
        { kind: 'range', path, comparison: '>=', bound: scalarOf(from, at) },
        { kind: 'range', path, comparison: '<=', bound: scalarOf(to, at) },
      );
    }
    case 'contains':
      return { kind: 'contains', path, value: operand };
    case 'later':
      throw notImplemented('this operator');
    default:
      if (typeof operand !== 'string') throw invalidQuery(at, 'must be a string');
      return { kind: 'text', path, match: operator, value: operand };
  }
}

const is = (path: Path, value: JsonValue): Condition =>
  value === null ? { kind: 'empty', path } : { kind: 'is', path, value };

function isIn(path: Path, values: readonly JsonValue[]): Condition {
  const list: Condition = { kind: 'in', path, values: values.filter((value) => value !== null) };
  return values.includes(null) ? or(list, { kind: 'empty', path }) : list;
}

function listOf(operand: JsonValue, at: string): JsonValue[] {
  if (!Array.isArray(operand)) throw invalidQuery(at, 'must be an array');
  if (operand.length > listValuesMax) throw overLimit(at, `may hold at most ${listValuesMax} values`);
  return operand;
}

function flagOf(operand: JsonValue, at: string): boolean {
  if (typeof operand !== 'boolean') throw invalidQuery(at, 'must be true or false');
  return operand;
}

function scalarOf(operand: JsonValue, at: string): Scalar {
  if (typeof operand === 'string' || typeof operand === 'boolean' || operand instanceof JsonNumber) return operand;
  throw invalidQuery(at, 'must be a string, a number or a boolean');
}

function boundsOf(operand: JsonValue, at: string): [JsonValue, JsonValue] {
  if (Array.isArray(operand) && operand.length === 2) return [operand[0]!, operand[1]!];
  if (operand instanceof Map && operand.size === 2) {
    for (const [from, to] of [
      ['from', 'to'],
      ['min', 'max'],
    ] as const) {
      if (operand.has(from) && operand.has(to)) return [operand.get(from)!, operand.get(to)!];
    }
  }
  throw invalidQuery(at, 'must be {"from": …, "to": …}, {"min": …, "max": …} or an array of two values');
}

export function invalidQuery(at: string, message: string): ServiceError {
  return invalid(`The query is not valid: ${at} ${message}`, { [at]: [message] }, INVALID_QUERY);
}

export function overLimit(at: string, message: string): ServiceError {
  return invalid(`${at} ${message}`, { [at]: [message] }, LIMIT_EXCEEDED);
}
