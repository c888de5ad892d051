import type { JsonValue } from '@granary/shared/json/value';
import { not, or, type Condition, type Path } from './condition';
import { flagOf, listOf, spelled, type Operator } from './operator';

export const isOperator: Operator = {
  spellings: spelled('is eq $eq'),
  operand: 'value',
  takesReferences: true,
  parse(path, value, location, references) {
    const to = references?.pathOf(value, location);
    if (to) return { kind: 'reference', path, comparison: 'is', to };
    return value === null ? { kind: 'empty', path } : { kind: 'is', path, value };
  },
};

const isIn: Operator = {
  spellings: spelled('in $in'),
  operand: 'list',
  takesReferences: true,
  parse(path, operand, location, references) {
    const to = references?.pathOf(operand, location);
    if (to) return { kind: 'reference', path, comparison: 'in', to };
    const values: JsonValue[] = [];
    const others: Condition[] = [];
    for (const value of listOf(operand, location)) {
      const toOne = references?.pathOf(value, location);
      if (toOne) others.push({ kind: 'reference', path, comparison: 'is', to: toOne });
      else if (value !== null) values.push(value);
      else if (others.every(({ kind }) => kind !== 'empty')) others.push({ kind: 'empty', path });
    }
    return or({ kind: 'in', path, values }, ...others);
  },
};

/** Operators for what a value is: one value, one of several, or none. */
export const valueOperators: readonly Operator[] = [
  isOperator,
  opposite('isNot ne $ne', isOperator),
  isIn,
  opposite('notIn $nin', isIn),
  flag('isNull', (path) => ({ kind: 'empty', path })),
  flag('isNotNull', (path) => not({ kind: 'empty', path })),
  flag('exists $exists', (path) => ({ kind: 'exists', path })),
];

function opposite(spellings: string, operator: Operator): Operator {
  return {
    spellings: spelled(spellings),
    operand: operator.operand,
    opposite: operator,
    takesReferences: operator.takesReferences ?? false,
    parse: (path, operand, at, references) => not(operator.parse(path, operand, at, references)),
  };
}

/** An operator whose operand is true for a condition and false for its opposite. */
function flag(spellings: string, condition: (path: Path) => Condition): Operator {
  return {
    spellings: spelled(spellings),
    operand: 'flag',
    parse: (path, operand, index) => (flagOf(operand, index) ? condition(path) : not(condition(path))),
  };
}
