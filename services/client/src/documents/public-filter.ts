import { GranaryError } from '../errors.ts';
import type { Query } from '../http/transport.ts';

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
 * NOT_SUPPORTED for `or` and `not`, which only reads with a key take.
 */
export function publicParameters(filter: object, path = ''): Query {
  const parameters: Query = {};
  for (const [name, value] of Object.entries(filter) as Array<[string, unknown]>) {
    if (value === undefined) continue;
    const logic = path === '' ? name.replace(/^\$/, '') : '';
    if (logic === 'and') for (const part of value as object[]) add(parameters, publicParameters(part));
    else if (logic === 'or' || logic === 'not') throw refused(`\`${name}\``);
    else if (typeof value !== 'object') add(parameters, { [`${path}${name}.$eq`]: value as string | number | boolean });
    else if (value === null) add(parameters, { [`${path}${name}.$isNull`]: true });
    else if (isCondition(value)) add(parameters, conditionParameters(`${path}${name}`, value));
    else add(parameters, publicParameters(value, `${path}${name}.`));
  }
  return parameters;
}

const isCondition = (value: object): boolean =>
  Object.keys(value).every((name) => operators.has(name.replace(/^\$/, '')));

function conditionParameters(path: string, condition: object): Query {
  const entries = Object.entries(condition).filter(([, operand]) => operand !== undefined);
  return Object.fromEntries(
    entries.map(([name, operand]) => {
      const text = typeof operand === 'object' ? JSON.stringify(operand) : (operand as string);
      return [`${path}.$${name.replace(/^\$/, '')}`, text];
    }),
  );
}

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
