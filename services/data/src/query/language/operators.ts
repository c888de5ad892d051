import { notImplemented } from '@granary/shared/errors';
import type { Operator } from './operator';
import { invalidQuery } from './query-error';
import { rangeOperators } from './range-operators';
import { textOperators } from './text-operators';
import { valueOperators } from './value-operators';

const families: ReadonlyArray<readonly Operator[]> = [valueOperators, rangeOperators, textOperators];

/** Operators that are documented and not there yet. */
const later = new Set(
  'regExpMatches $regex CIDR cidr isLocalIp isExternalIp inCountry inDataset b64 $search'.split(' '),
);

/** Every operator by each of its spellings. */
const bySpelling = new Map(
  families.flat().flatMap((operator) => operator.spellings.map((name) => [name, operator] as const)),
);

export const isOperatorName = (name: string): boolean => bySpelling.has(name) || later.has(name);

/** Throws INVALID_QUERY for a name that is no operator's, NOT_IMPLEMENTED for one that is still to come. */
export function operatorOf(name: string, at: string): Operator {
  const operator = bySpelling.get(name);
  if (operator !== undefined) return operator;
  if (later.has(name)) throw notImplemented(`the operator ${name}`);
  throw invalidQuery(at, 'is not a known operator');
}
