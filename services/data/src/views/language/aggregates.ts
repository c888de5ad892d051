import type { JsonValue } from '@granary/shared/json/value';
import type { Path } from '../../query/language/condition';
import { parsePath } from '../../query/language/path';
import { invalidQuery, overLimit } from '../../query/language/query-error';

export const groupFieldsMax = 16;
export const aggregatesMax = 64;

/**
 * Each operator with its result: a number, a value of its field, or the value of its field in one row, by its place.
 */
const results = {
  sum: 'number',
  avg: 'number',
  min: 'value',
  max: 'value',
  count: 'number',
  count_distinct: 'number',
  first: 'row',
  last: 'row',
} as const;
export type AggregateOperator = keyof typeof results;
const aggregateOperators = Object.keys(results) as AggregateOperator[];

export interface Aggregate {
  alias: string;
  operator: AggregateOperator;
  /** Undefined: whole rows are counted (`"*"`). */
  path: Path | undefined;
}

/** Whether the result is a value of the field, of its type, and no number that is computed. */
export const isFieldValue = ({ operator }: Aggregate): boolean => results[operator] !== 'number';

/** Whether an operator, as queries spell it (`$sum`), computes a number. */
export const isNumberOperator = (spelling: string): boolean =>
  aggregateOperators.some((operator) => spelling === `$${operator}` && results[operator] === 'number');

/** Whether the result depends on the order of the rows of a group. */
export const isByPlace = ({ operator }: Aggregate): boolean => results[operator] === 'row';

export interface Groups {
  by: readonly Path[];
  aggregates: readonly Aggregate[];
}

/** `group_by` and `aggregate`; undefined where there is neither. Throws INVALID_QUERY, LIMIT_EXCEEDED. */
export function parseGroups(groupBy: JsonValue | undefined, aggregate: JsonValue | undefined): Groups | undefined {
  const by = parseGroupBy(groupBy);
  const aggregates = parseAggregates(aggregate);
  if (by === undefined && aggregates.length === 0) return undefined;
  refuseSameColumns(by ?? [], aggregates);
  return { by: by ?? [], aggregates };
}

function parseGroupBy(value: JsonValue | undefined): Path[] | undefined {
  if (value === undefined || value === null) return undefined;
  const names = typeof value === 'string' ? value.split(',').map((name) => name.trim()) : value;
  if (!Array.isArray(names)) throw invalidQuery('query.group_by', 'must be a field or a list of fields');
  if (names.length > groupFieldsMax) throw overLimit('query.group_by', `may hold at most ${groupFieldsMax} fields`);
  const paths = names.map((name) => {
    if (typeof name !== 'string') throw invalidQuery('query.group_by', 'must hold names of fields');
    return parsePath(name, 'query.group_by');
  });
  return paths.length === 0 ? undefined : paths;
}

function parseAggregates(value: JsonValue | undefined): Aggregate[] {
  if (value === undefined || value === null) return [];
  if (!(value instanceof Map))
    throw invalidQuery('query.aggregate', 'must be an object of the form {"alias": {"$sum": "field"}}');
  if (value.size > aggregatesMax) throw overLimit('query.aggregate', `may hold at most ${aggregatesMax} aggregates`);
  return [...value].map(([alias, definition]) => parseAggregate(alias, definition, `query.aggregate.${alias}`));
}

function parseAggregate(alias: string, definition: JsonValue, location: string): Aggregate {
  if (alias === '' || alias.includes('.') || alias.startsWith('$')) {
    throw invalidQuery(location, 'must not be empty, hold a dot or begin with $');
  }
  const [entry, ...more] = definition instanceof Map ? [...definition] : [];
  if (entry === undefined || more.length > 0) throw invalidQuery(location, 'must be an object with one operator');
  const [name, field] = entry;
  const operator = aggregateOperators.find((known) => name === `$${known}`);
  if (operator === undefined) {
    throw invalidQuery(location, `must use one of ${aggregateOperators.map((known) => `$${known}`).join(', ')}`);
  }
  if (typeof field !== 'string') throw invalidQuery(location, 'must name a field');
  if (field === '*' && operator !== 'count') throw invalidQuery(location, 'must name a field: only $count takes "*"');
  return { alias, operator, path: field === '*' ? undefined : parsePath(field, location) };
}

/** No column may be another, or stand inside it. */
function refuseSameColumns(groups: readonly Path[], aggregates: readonly Aggregate[]): void {
  const columns = [...groups, ...aggregates.map(({ alias }) => [alias])];
  columns.forEach((column, index) => {
    for (const other of columns.slice(0, index)) {
      const shared = Math.min(column.length, other.length);
      if (column.slice(0, shared).every((step, index) => step === other[index])) {
        throw invalidQuery('query', `gives two columns the name ${column.join('.')}`);
      }
    }
  });
}

/** The paths of the columns of a grouped view: its groups, then its aggregates. */
export const columnPaths = ({ by, aggregates }: Groups): Path[] => [...by, ...aggregates.map(({ alias }) => [alias])];
