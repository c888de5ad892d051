import { invalid } from '@granary/shared/errors';
import { JsonNumber, readJson, type JsonValue } from '@granary/shared/json/value';
import type { Parameter } from '@granary/shared/gen/granary/data/v1/Parameter';
import type { FieldType } from '../../values/field-type';
import { and, not, or, type Condition, type Path } from './condition';
import type { Operator } from './operator';
import { invalidQuery } from './query-error';
import { operatorOf } from './operators';

/** The parameters of a URL by name. Throws when one is given twice, or holds what no text in the database can. */
export function parametersByName(parameters: readonly Parameter[]): Map<string, string> {
  const byName = new Map<string, string>();
  for (const { name, value } of parameters) {
    if (byName.has(name)) throw refused(name, 'is given more than once');
    if (!isStorable(name) || !isStorable(value)) throw refused(name, 'holds a character that cannot be stored');
    byName.set(name, value);
  }
  return byName;
}

const isStorable = (text: string): boolean => text.isWellFormed() && !text.includes('\0');

/** Takes the named values out of a map of parameters. */
export function take(parameters: Map<string, string>, name: string): string | undefined {
  const value = parameters.get(name);
  if (value !== undefined) parameters.delete(name);
  return value;
}

export function refused(name: string, message: string): ReturnType<typeof invalid> {
  return invalid(`The parameter ${name} ${message}`, { [name]: [message] });
}

const [atLeast, atMost] = ['greaterThanOrEqual', 'lessThanOrEqual'].map((name) => operatorOf(name, name));

/**
 * A condition from the text of a URL, read as the type of the field says; where nothing says it, both as a string and
 * as the JSON scalar that it reads as. Lists are separated by commas. Throws INVALID_QUERY.
 */
export function conditionOfText(
  path: Path,
  operator: Operator,
  text: string,
  type: FieldType,
  location: string,
): Condition {
  if (operator.opposite) return not(conditionOfText(path, operator.opposite, text, type, location));
  switch (operator.operand) {
    case 'flag':
      return operator.parse(path, scalarOf(text) ?? text, location);
    case 'text':
      return operator.parse(path, text, location);
    case 'texts':
      return operator.parse(path, arrayOf(text) ?? text.split(','), location);
    case 'list': {
      const array = arrayOf(text);
      const values = array?.map((value) => typed(value, type, location)) ?? listed(text, type, location);
      return operator.parse(path, values, location);
    }
    case 'pair': {
      const [from, to, ...more] = text.split(',');
      if (from === undefined || to === undefined || more.length > 0) {
        throw invalidQuery(location, 'must be two values separated by a comma');
      }
      return and(
        conditionOfText(path, atLeast!, from, type, location),
        conditionOfText(path, atMost!, to, type, location),
      );
    }
    case 'value': {
      const values = readings(text, type, location).filter((value) => value !== null || !operator.refusesNull);
      return or(...values.map((value) => operator.parse(path, value, location)));
    }
  }
}

/** A list that is written as a JSON array, so that its values may have commas; undefined for any other text. */
function arrayOf(text: string): JsonValue[] | undefined {
  if (!text.startsWith('[')) return undefined;
  try {
    const value = readJson(Buffer.from(text), { maxDepth: 16 });
    return Array.isArray(value) ? value : undefined;
  } catch {
    return undefined;
  }
}

/** A value of such an array, which has the type that it is written in. */
function typed(value: JsonValue, type: FieldType, location: string): JsonValue {
  if (value === null || type === 'any') return value;
  if ((type === 'number' || type === 'integer') && !(value instanceof JsonNumber))
    throw invalidQuery(location, 'must hold numbers');
  if (type === 'boolean' && typeof value !== 'boolean') throw invalidQuery(location, 'must hold true or false');
  return value;
}

const listed = (text: string, type: FieldType, location: string): JsonValue[] =>
  text.split(',').flatMap((value) => readings(value, type, location));

function readings(text: string, type: FieldType, location: string): JsonValue[] {
  const scalar = scalarOf(text);
  switch (type) {
    case 'string':
    case 'date':
    case 'day':
      return [text];
    case 'number':
    case 'integer':
      if (!(scalar instanceof JsonNumber)) throw invalidQuery(location, 'must be a number');
      return [scalar];
    case 'boolean':
      if (typeof scalar !== 'boolean') throw invalidQuery(location, 'must be true or false');
      return [scalar];
    case 'any':
      return scalar === undefined ? [text] : [text, scalar];
  }
}

/** The JSON scalar that text reads as, undefined when it is none. */
function scalarOf(text: string): null | boolean | string | JsonNumber | undefined {
  if (!/^(?:["\d-]|true$|false$|null$)/.test(text)) return undefined;
  try {
    return readJson(Buffer.from(text), { maxDepth: 0 }) as null | boolean | string | JsonNumber;
  } catch {
    // Not JSON: then it is only a string.
    return undefined;
  }
}
