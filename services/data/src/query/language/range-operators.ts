import { JsonNumber, type JsonValue } from '@granary/shared/json/value';
import { and, type Comparison, type Condition, type Path, type Scalar } from './condition';
import { spelled, type Operator, type References } from './operator';
import { invalidQuery } from './query-error';

/** Comparisons with a bound, or with two of them. */
export const rangeOperators: readonly Operator[] = [
  comparing('greaterThan gt $gt', '>'),
  comparing('greaterThanOrEqual gte $gte', '>='),
  comparing('lessThan lt $lt', '<'),
  comparing('lessThanOrEqual lte $lte', '<='),
  {
    spellings: spelled('between betweenOp $between'),
    operand: 'pair',
    takesReferences: true,
    parse(path, operand, location, references) {
      const [from, to] = boundsOf(operand, location);
      return and(range(path, '>=', from, location, references), range(path, '<=', to, location, references));
    },
  },
];

function comparing(spellings: string, comparison: Comparison): Operator {
  return {
    spellings: spelled(spellings),
    operand: 'value',
    refusesNull: true,
    takesReferences: true,
    parse: (path, operand, at, references) => range(path, comparison, operand, at, references),
  };
}

function range(
  path: Path,
  comparison: Comparison,
  operand: JsonValue,
  location: string,
  references: References | undefined,
): Condition {
  const to = references?.pathOf(operand, location);
  if (to) return { kind: 'reference', path, comparison, to };
  return { kind: 'range', path, comparison, bound: scalarOf(operand, location) };
}

function scalarOf(operand: JsonValue, location: string): Scalar {
  if (typeof operand === 'string' || typeof operand === 'boolean' || operand instanceof JsonNumber) return operand;
  throw invalidQuery(location, 'must be a string, a number or a boolean');
}

function boundsOf(operand: JsonValue, location: string): [JsonValue, JsonValue] {
  if (Array.isArray(operand) && operand.length === 2) return [operand[0]!, operand[1]!];
  if (operand instanceof Map && operand.size === 2) {
    for (const [from, to] of [
      ['from', 'to'],
      ['min', 'max'],
    ] as const) {
      if (operand.has(from) && operand.has(to)) return [operand.get(from)!, operand.get(to)!];
    }
  }
  throw invalidQuery(location, 'must be {"from": …, "to": …}, {"min": …, "max": …} or an array of two values');
}
