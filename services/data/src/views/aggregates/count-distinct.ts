import { sql } from '@granary/shared/postgres/sql';
import type { AggregateSql } from './aggregate';
import { sortParts } from './sort-parts';

/** `$count_distinct`: the number of different values, of a date that of its instants. */
export const countDistinct: AggregateSql = {
  whole: ({ value, isDate }) => {
    const present = sql`nullif(${value}, 'null'::jsonb)`;
    if (!isDate) return sql`count(distinct ${present})::text`;
    // The key of an instant is a number, which the rank tells from a number that was written.
    const { rank, key } = sortParts(present, true);
    return sql`(count(distinct row(${rank}, ${key})) filter (where ${present} is not null))::text`;
  },
  delta: ({ isDate }) => ({ by: 'values', kind: isDate ? 'instant' : 'value', take: 'number' }),
};
