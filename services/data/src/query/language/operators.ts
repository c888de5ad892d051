import { nearestName, suggestion } from '@granary/shared/near-names';
import { datasetOperators } from './dataset-operators';
import { encodedOperators } from './encoded-operators';
import { networkOperators } from './network-operators';
import type { Operator } from './operator';
import { invalidQuery } from './query-error';
import { rangeOperators } from './range-operators';
import { regexpOperators } from './regexp-operators';
import { searchOperators } from './search-operators';
import { textOperators } from './text-operators';
import { valueOperators } from './value-operators';

/**
 * The operators by family. A new operator goes into the file of its family: its spellings, its kind of operand, how it
 * parses. A new kind of condition goes into `condition.ts`, its SQL as a function of `RowFields` and the condition into
 * a file of `query/sql`, with a case in `filter-sql.ts`. Its meaning goes into the evaluator of the property tests, its
 * spellings and operands into their generators (docs/testing.md, Proofs of queries and views).
 */
const families: ReadonlyArray<readonly Operator[]> = [
  valueOperators,
  rangeOperators,
  textOperators,
  regexpOperators,
  encodedOperators,
  networkOperators,
  datasetOperators,
  searchOperators,
];

/** The name of each operator. */
export const operatorNames: readonly string[] = families.flat().map(({ spellings }) => spellings[0]!);

const spellings: readonly string[] = families.flat().flatMap((operator) => operator.spellings);
/** Letters of the beginning of an operator that is taken for it. */
const beginningLengthMin = 3;

/** The spelling of an operator that a name may be meant to be: a near one, or one that begins with it. */
export const nearestOperator = (name: string): string | undefined =>
  nearestName(name, spellings) ??
  (name.length < beginningLengthMin ? undefined : spellings.find((spelling) => spelling.startsWith(name)));

/** A suffix begins with `$`, so every name has a spelling that does. */
const withSuffixes = (names: readonly string[]): string[] =>
  names.flatMap((name) => (name.startsWith('$') ? [name] : [name, `$${name}`]));

/** Every operator by each of its spellings. */
const bySpelling = new Map(
  families.flat().flatMap((operator) => withSuffixes(operator.spellings).map((name) => [name, operator] as const)),
);

export const isOperatorName = (name: string): boolean => bySpelling.has(name);

/** Throws INVALID_QUERY for a name that is no operator's. */
export function operatorOf(name: string, location: string): Operator {
  const operator = bySpelling.get(name);
  if (operator !== undefined) return operator;
  throw invalidQuery(location, `is not a known operator${suggestion(nearestOperator(name))}`);
}
