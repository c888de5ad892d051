import { not, or, type Condition, type Path } from './condition';
import { flagOf, listOf, spelled, type Operator } from './operator';

export const isOperator: Operator = {
  spellings: spelled('is eq $eq'),
  operand: 'value',
  parse: (path, value) => (value === null ? { kind: 'empty', path } : { kind: 'is', path, value }),
};

const isIn: Operator = {
  spellings: spelled('in $in'),
  operand: 'list',
  parse(path, operand, at) {
    const values = listOf(operand, at);
    const list: Condition = { kind: 'in', path, values: values.filter((value) => value !== null) };
    return values.includes(null) ? or(list, { kind: 'empty', path }) : list;
  },
};

/** What a value is, in one or several values or in none. */
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
    parse: (path, operand, at) => not(operator.parse(path, operand, at)),
  };
}

/** An operator whose operand is true for a condition and false for its opposite. */
function flag(spellings: string, condition: (path: Path) => Condition): Operator {
  return {
    spellings: spelled(spellings),
    operand: 'flag',
    parse: (path, operand, at) => (flagOf(operand, at) ? condition(path) : not(condition(path))),
  };
}
