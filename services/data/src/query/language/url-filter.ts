import { invalid } from '@granary/shared/errors';
import { JsonNumber, readJson, type JsonValue } from '@granary/shared/json/value';
import type { Parameter } from '@granary/shared/gen/granary/data/v1/Parameter';
import { and, invalidQuery, not, or, parseOperator, type Condition, type Operator, type Path } from './filter';
import type { FieldType } from '../../values/field-type';

/** The parameters of a URL by name. Throws when one is given twice, or holds what no text in the database can. */
export function parametersByName(parameters: readonly Parameter[]): Map<string, string> {
  const byName = new Map<string, string>();
  for (const { name, value } of parameters) {
    if (byName.has(name)) throw refused(name, 'is given more than once');
    if (/\0|\p{Surrogate}/u.test(name + value)) throw refused(name, 'holds a character that cannot be stored');
    byName.set(name, value);
  }
  return byName;
}

/** Takes the named values out of a map of parameters. */
export function take(parameters: Map<string, string>, name: string): string | undefined {
  const value = parameters.get(name);
  parameters.delete(name);
  return value;
}

export function refused(name: string, message: string): ReturnType<typeof invalid> {
  return invalid(`The parameter ${name} ${message}`, { [name]: [message] });
}

const negations = new Map<Operator, Operator>([
  ['isNot', 'is'],
  ['notIn', 'in'],
]);

/**
 * A condition from the text of a URL, read as the type of the field says; where nothing says it, both as a string and
 * as the JSON scalar that it reads as. Lists are separated by commas. Throws INVALID_QUERY.
 */
export function conditionOfText(path: Path, operator: Operator, text: string, type: FieldType, at: string): Condition {
  const positive = negations.get(operator);
  if (positive !== undefined) return not(conditionOfText(path, positive, text, type, at));
  switch (operator) {
    case 'isNull':
    case 'isNotNull':
    case 'exists':
      return parseOperator(operator, path, scalarOf(text) ?? text, at);
    case 'in': {
      const values = text.split(',').flatMap((value) => readings(value, type, at));
      return parseOperator('in', path, values, at);
    }
    case 'between': {
      const [from, to, ...more] = text.split(',');
      if (from === undefined || to === undefined || more.length > 0) {
        throw invalidQuery(at, 'must be two values separated by a comma');
      }
      return and(
        conditionOfText(path, 'greaterThanOrEqual', from, type, at),
        conditionOfText(path, 'lessThanOrEqual', to, type, at),
      );
    }
    case 'startsWith':
    case 'endsWith':
    case 'includesCaseInsensitive':
    case 'startsWithCaseInsensitive':
    case 'endsWithCaseInsensitive':
      return parseOperator(operator, path, text, at);
    default: {
      const isRange = operator !== 'is' && operator !== 'contains';
      const values = readings(text, type, at).filter((value) => !(isRange && value === null));
      return or(...values.map((value) => parseOperator(operator, path, value, at)));
    }
  }
}

function readings(text: string, type: FieldType, at: string): JsonValue[] {
  const scalar = scalarOf(text);
  switch (type) {
    case 'string':
    case 'date':
      return [text];
    case 'number':
      if (!(scalar instanceof JsonNumber)) throw invalidQuery(at, 'must be a number');
      return [scalar];
    case 'boolean':
      if (typeof scalar !== 'boolean') throw invalidQuery(at, 'must be true or false');
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
