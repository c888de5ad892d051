import { sql, type Sql } from '@granary/shared/postgres/sql';
import type { AggregateSql, Delta } from './aggregate';
import { countDifference } from './numbers';

/** `$count` of a field: the rows that have a value of it. */
export const count: AggregateSql = {
  whole: ({ value }) => sql`count(nullif(${value}, 'null'::jsonb))::text`,
  delta: ({ value }) => ({
    by: 'sums',
    sums: [{ letter: 'c', type: 'int8', difference: countDifference(sql`jsonb_typeof(${value}) <> 'null'`) }],
    text: ([counted]) => sql`${counted!}::text`,
  }),
};

/** `$count` of `*`: all rows, whose number `n` each group keeps anyway. */
export const countOfRows: { whole: Sql; delta: Delta } = {
  whole: sql`count(*)::text`,
  delta: { by: 'sums', sums: [], text: () => sql`x.n::text` },
};
