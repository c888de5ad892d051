import type { Sql } from '@granary/shared/postgres/sql';
import type { Path } from '../../query/language/condition';
import type { Aggregate, AggregateOperator } from '../language/aggregates';
import type { AggregateSql, Argument, Delta } from './aggregate';
import { avg } from './avg';
import { count, countOfRows } from './count';
import { countDistinct } from './count-distinct';
import { first } from './first';
import { last } from './last';
import { max } from './max';
import { min } from './min';
import { sum } from './sum';

const operators: Record<AggregateOperator, AggregateSql> = {
  sum,
  avg,
  min,
  max,
  count,
  count_distinct: countDistinct,
  first,
  last,
};

/** The JSON text of an aggregate over all rows of a group, an SQL aggregate that is never null. */
export const wholeOf = ({ operator, path }: Aggregate, argumentOf: (path: Path) => Argument): Sql =>
  path === undefined ? countOfRows.whole : operators[operator].whole(argumentOf(path));

/** The way in which an aggregate follows a change whose rows `e` have its argument in the column `value`. */
export const deltaOf = ({ operator, path }: Aggregate, value: Sql, isDate: boolean): Delta =>
  path === undefined ? countOfRows.delta : operators[operator].delta({ value, isDate });
