import { sql, trusted, type Sql } from '@granary/shared/postgres/sql';
import type { AggregateSql, Argument } from './aggregate';
import { sortParts } from './sort-parts';

type End = 'least' | 'most';

/** The SQL aggregates that take the least and the greatest of `keyed_value`. */
const takers: Record<End, Sql> = { least: trusted('first_value_of'), most: trusted('last_value_of') };

/** The least or the greatest value of a group, in one spelling; null where there is none. */
export const extremeValue = (take: End): AggregateSql => ({
  whole: ({ value, isDate }) => {
    const present = sql`nullif(${value}, 'null'::jsonb)`;
    const { rank, key } = sortParts(present, isDate);
    const extreme = sql`${takers[take]}(row(${rank}, ${key}, ${present})::keyed_value)`;
    return sql`coalesce(canonical_json((${extreme} filter (where ${present} is not null)).value), 'null')`;
  },
  delta: () => ({ by: 'values', kind: 'value', take }),
});

/** The text, as it was written, of the row of a group that has the least or the greatest place. */
export const extremePlace = (take: End): AggregateSql => ({
  whole: ({ text, ordinal, place }: Argument) => {
    const extreme = sql`${takers[take]}(row(${ordinal}, ${place}, to_jsonb(${text}))::keyed_value)`;
    return sql`coalesce((${extreme}).value #>> '{}', 'null')`;
  },
  delta: () => ({ by: 'values', kind: 'place', take }),
});
