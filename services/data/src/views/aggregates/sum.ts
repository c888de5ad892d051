import { sql } from '@granary/shared/postgres/sql';
import type { AggregateSql } from './aggregate';
import { numberOf, sumDifference } from './numbers';

/** `$sum`: exact, of the numbers; 0 where there are none. */
export const sum: AggregateSql = {
  whole: ({ value }) => sql`trim_scale(coalesce(sum(${numberOf(value)}), 0))::text`,
  delta: ({ value }) => ({
    by: 'sums',
    sums: [{ letter: 's', type: 'numeric', difference: sumDifference(value) }],
    text: ([total]) => sql`trim_scale(${total!})::text`,
  }),
};
