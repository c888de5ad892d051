import { sql, type Sql } from '@granary/shared/postgres/sql';

/**
 * The rank of the type of a value, and the value that it is compared by among those of its rank: instants of a date
 * come before strings, numbers, booleans, arrays and objects.
 */
export function sortParts(value: Sql, isDate: boolean): { rank: Sql; key: Sql } {
  if (!isDate) return { rank: sql`sort_rank(${value})`, key: value };
  const isInstant = sql`jsonb_typeof(${value}) = 'string' and instant_of(${value} #>> '{}') is not null`;
  return { rank: sql`case when ${isInstant} then -1 else sort_rank(${value}) end`, key: sql`date_key(${value})` };
}
