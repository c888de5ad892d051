import { countryCodes, networks } from './network-reference';
import { datasets, type Meaning } from './query-reference';
import { dates, expressions, numbers, paths, searches, strings, type Values } from './query-values';

/** A filter as it is sent, and what it means. */
export interface Filter {
  find: Record<string, unknown>;
  meaning: Meaning;
}

const spelled = new Map<string, string[]>([
  ['is', ['is', 'eq', '$eq']],
  ['isNot', ['isNot', 'ne', '$ne']],
  ['in', ['in', '$in']],
  ['notIn', ['notIn', '$nin']],
  ['exists', ['exists', '$exists']],
  ['>', ['greaterThan', 'gt', '$gt']],
  ['>=', ['greaterThanOrEqual', 'gte', '$gte']],
  ['<', ['lessThan', 'lt', '$lt']],
  ['<=', ['lessThanOrEqual', 'lte', '$lte']],
  ['between', ['between', 'betweenOp', '$between']],
  ['contains', ['includes', 'contains', '$contains']],
  ['CIDR', ['CIDR', 'cidr']],
  ['inDataset', ['inDataset', '$inDataset']],
  ['b64', ['b64', '$b64']],
  ['$search', ['$search']],
  ['regExpMatches', ['regExpMatches', '$regExpMatches', '$regex']],
]);
const operators = [
  'is',
  'is',
  'isNot',
  'in',
  'notIn',
  'isNull',
  'isNotNull',
  'exists',
  '>',
  '>=',
  '<',
  '<=',
  'between',
  'contains',
  'startsWith',
  'endsWith',
  'includesCaseInsensitive',
  'regExpMatches',
  '$search',
  'CIDR',
  'CIDR',
  'isLocalIp',
  'isExternalIp',
  'inCountry',
  'inDataset',
  'inDataset',
  'b64',
  'startsWithCaseInsensitive',
  'endsWithCaseInsensitive',
  'regExpMatches',
];

const meant: Record<string, 'all' | 'any' | 'none'> = {
  and: 'all',
  or: 'any',
  not: 'none',
  $and: 'all',
  $or: 'any',
  $not: 'none',
};

/** A sort term, as it is sent and what it means. */
export interface Term {
  path: string;
  descending: boolean;
}

export interface FilterGenerator {
  /** Any condition, or several that are nested. */
  filter: () => Filter;
  /** One that fixes a field of an index, perhaps beside others. */
  fixing: () => Filter;
  /** Any order, or one that a composite index may serve. */
  sort: (round: number) => Term[];
  operand: (operator: string, path: string) => unknown;
}

/** The composite indexes of the collection with indexes. */
export const composites = [
  ['e', 'a'],
  ['a', 'e'],
  ['b', 'd'],
  ['e', 'n.x', 'd'],
  ['n.0', 'id'],
];

/** Filters over the documents of those values; `$search` is among them where the field `s` has a full-text index. */
export function filterGenerator({ random, pick, scalar, value }: Values, withSearch = true): FilterGenerator {
  const scalarFor = (path: string): unknown =>
    path === 'd' && random(3) > 0 ? pick(dates) : path === 'id' ? `k${random(400)}` : scalar();
  const makeOperand = (operator: string, scalar: () => unknown): unknown => {
    switch (operator) {
      case 'is':
      case 'isNot':
      case 'contains':
        return random(5) === 0 ? value() : scalar();
      case 'in':
      case 'notIn':
        return Array.from({ length: random(5) }, () => (random(6) === 0 ? value() : scalar()));
      case 'isNull':
      case 'isNotNull':
      case 'exists':
        return random(2) === 0;
      case 'isLocalIp':
      case 'isExternalIp':
        return random(2) === 0;
      case 'CIDR':
        return random(3) === 0 ? pick(networks) : Array.from({ length: random(4) }, () => pick(networks));
      case 'inCountry':
        return random(2) === 0 ? pick(countryCodes) : Array.from({ length: random(3) }, () => pick(countryCodes));
      case 'inDataset':
        return pick(Object.keys(datasets));
      case 'b64':
        return Buffer.from(pick(strings)).toString(pick(['base64', 'base64url']));
      case 'between':
        return [scalar(), scalar()];
      case 'startsWith':
      case 'endsWith':
      case 'includesCaseInsensitive':
      case 'startsWithCaseInsensitive':
      case 'endsWithCaseInsensitive':
        return pick(strings);
      case 'regExpMatches':
        return pick(expressions);
      case '$search':
        return pick(searches);
      default:
        return scalar();
    }
  };
  const sentAs = (path: string, operator: string, operand: unknown): Record<string, unknown> => {
    const name = pick(spelled.get(operator) ?? [operator]);
    const sent =
      operator === 'between'
        ? pick([operand, { from: (operand as unknown[])[0], to: (operand as unknown[])[1] }])
        : operand;
    const suffix = name.startsWith('$') ? name : `$${name}`;
    const way = random(4);
    if (way === 0) return { [`${path}.${suffix}`]: sent };
    if (way === 1) {
      const nested = path.split('.').reduceRight<unknown>((inner, step) => ({ [step]: inner }), { [name]: sent });
      return nested as Record<string, unknown>;
    }
    if (operator === 'is' && (typeof operand !== 'object' || operand === null)) return { [path]: operand };
    return { [path]: { [name]: sent } };
  };
  const makeFilter = (depth = 0): Filter => {
    if (depth < 3 && random(3) === 0) {
      const logical = pick(['and', 'or', 'not', '$and', '$or', '$not'] as const);
      const parts = Array.from({ length: random(4) }, () => makeFilter(depth + 1));
      const meanings = parts.map(({ meaning }) => meaning);
      return {
        find: { [logical]: parts.map(({ find }) => find) },
        meaning: { [meant[logical]!]: meanings } as Meaning,
      };
    }
    const operator = pick(operators.filter((name) => withSearch || name !== '$search'));
    const path = operator === '$search' ? 's' : pick(paths);
    const operand = makeOperand(operator, () => scalarFor(path));
    return { find: sentAs(path, operator, operand), meaning: { path: path.split('.'), operator, operand } };
  };
  const equality = (): Filter => {
    const path = pick(['e', 'a', 'b', 'n.0', 'id']);
    const operand = path === 'e' ? pick(numbers) : path === 'n.0' ? 'zero' : scalarFor(path);
    return { find: { [path]: operand }, meaning: { path: path.split('.'), operator: 'is', operand } };
  };
  const fixing = (): Filter => {
    const [first, way] = [equality(), random(4)];
    if (way < 2) return first;
    const other = way === 2 ? equality() : makeFilter(2);
    return { find: { and: [first.find, other.find] }, meaning: { all: [first.meaning, other.meaning] } };
  };
  const sort = (round: number): Term[] => {
    const descending = random(2) === 0;
    if (round % 2 === 0) return pick(composites.slice(0, 4)).map((path) => ({ path, descending }));
    const length = 1 + random(round % 3 === 0 ? 3 : 1);
    return Array.from({ length }, () => ({ path: pick(paths), descending: random(2) === 0 }));
  };
  const operand = (operator: string, path: string) => makeOperand(operator, () => scalarFor(path));
  return { filter: () => makeFilter(), fixing, sort, operand };
}

export const nameOf = ({ path, descending }: Term): string => (descending ? `-${path}` : path);
