import { sql } from '@granary/shared/postgres/sql';
import type { AggregateSql } from './aggregate';
import { countDifference, isNumber, numberOf, sumDifference } from './numbers';

/** `$avg`: of the numbers, to 16 significant digits; null where there are none. */
export const avg: AggregateSql = {
  whole: ({ value }) => {
    const number = numberOf(value);
    return sql`coalesce(average_of(sum(${number}), count(${number}))::text, 'null')`;
  },
  delta: ({ value }) => ({
    by: 'sums',
    sums: [
      { letter: 's', type: 'numeric', difference: sumDifference(value) },
      { letter: 'c', type: 'int8', difference: countDifference(isNumber(value)) },
    ],
    text: ([total, counted]) => sql`coalesce(average_of(${total!}, ${counted!})::text, 'null')`,
  }),
};
