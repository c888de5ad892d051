import { GranaryError } from '../errors.ts';
import type { Query } from '../http/transport.ts';
import { invalidFilter } from './filter.ts';

/** Names that are operators in a filter; with a `$` before them they are suffixes of a parameter. */
const operators = new Set(
  (
    'is eq isNot ne in notIn nin isNull isNotNull exists greaterThan gt greaterThanOrEqual gte lessThan lt ' +
    'lessThanOrEqual lte between betweenOp includes contains startsWith endsWith includesCaseInsensitive ' +
    'startsWithCaseInsensitive endsWithCaseInsensitive regExpMatches regex CIDR cidr isLocalIp isExternalIp ' +
    'inCountry inDataset b64 search'
  ).split(' '),
);

/**
 * A filter as the parameters of a public read, which takes conditions that all have to be met. Throws GranaryError with
 * NOT_SUPPORTED for `or` and `not`, which only reads with a key take, and with VALIDATION_FAILED for what is no filter.
 */
export function publicParameters(filter: object, path = ''): Query {
  const parameters: Query = {};
  for (const [name, value] of Object.entries(filter) as Array<[string, unknown]>) {
    const logic = path === '' ? name.replace(/^\$/, '') : '';
    if (logic === 'and') for (const part of value as object[]) add(parameters, publicParameters(part));
    else if (logic === 'or' || logic === 'not') throw refused(`\`${name}\``);
    else if (typeof value !== 'object' || value === null) add(parameters, condition(path + name, 'eq', value));
    else if (isCondition(value)) {
      for (const [operator, operand] of Object.entries(value) as Array<[string, unknown]>) {
        add(parameters, condition(path + name, operator.replace(/^\$/, ''), operand));
      }
    } else if (Array.isArray(value) || Object.keys(value).length === 0) {
      throw invalidFilter(`find.${path}${name} has no operator`);
    } else add(parameters, publicParameters(value, `${path}${name}.`));
  }
  return parameters;
}

const isCondition = (value: object): boolean => {
  const names = Object.keys(value);
  return names.length > 0 && names.every((name) => operators.has(name.replace(/^\$/, '')));
};

const equality = new Set(['is', 'eq', 'isNot', 'ne']);

function condition(path: string, operator: string, operand: unknown): Query {
  if (operand === null && equality.has(operator)) {
    return { [`${path}.$${operator === 'is' || operator === 'eq' ? 'isNull' : 'isNotNull'}`]: true };
  }
  // In a URL it is two texts with a comma between them, which a value may have in it.
  if (operator === 'between' || operator === 'betweenOp') {
    const bounds = operand as { 0?: Scalar; 1?: Scalar; from?: Scalar; to?: Scalar; min?: Scalar; max?: Scalar };
    const [low, high] = [bounds[0] ?? bounds.from ?? bounds.min, bounds[1] ?? bounds.to ?? bounds.max];
    return { [`${path}.$gte`]: low, [`${path}.$lte`]: high };
  }
  const text = typeof operand === 'object' ? JSON.stringify(operand) : (operand as Scalar);
  return { [`${path}.$${operator}`]: text };
}

type Scalar = string | number | boolean;

function add(parameters: Query, more: Query): void {
  for (const [name, value] of Object.entries(more)) {
    if (name in parameters) throw refused(`\`${name}\` twice`);
    parameters[name] = value;
  }
}

const refused = (what: string): GranaryError =>
  new GranaryError(`A read without a key does not take ${what}; a view or a predefined query may`, {
    code: 'NOT_SUPPORTED',
  });
