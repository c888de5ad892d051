import { sql, type Sql } from '@granary/shared/postgres/sql';

export const isNumber = (value: Sql): Sql => sql`jsonb_typeof(${value}) = 'number'`;

/** A jsonb as a number; null where it is none, since Postgres may convert an argument before it looks at a filter. */
export const numberOf = (value: Sql): Sql => sql`case when ${isNumber(value)} then ${value}::numeric end`;

/** The sum of the weights of the changed rows that fulfil a condition. */
export const countDifference = (condition: Sql): Sql => sql`coalesce(sum(e.w) filter (where ${condition}), 0)::int8`;

/** The sum of the numbers among the values of the changed rows. */
export const sumDifference = (value: Sql): Sql => sql`coalesce(sum(e.w * ${numberOf(value)}), 0)`;
