import { join, sql, type Sql } from '@granary/shared/postgres/sql';
import { addressPrefixes } from '../../values/network';
import { orderedKey } from '../../values/ordered-key';
import type { ConditionOf, Path } from '../language/condition';
import { keysWithPrefix } from './key-sql';
import type { RowFields } from './row-fields';

export function networkSql(fields: RowFields, { path, networks, isWithin }: ConditionOf<'network'>): Sql {
  const within = sql`${addressOf(fields, path)} <<= any(${networks}::inet[])`;
  if (!isWithin) return sql`not (${within})`;
  const column = fields.keyOf(path);
  const prefixes = column && addressPrefixes(networks);
  if (!prefixes) return within;
  // The keys with these prefixes are more than those of the networks.
  const ranges = prefixes.map((prefix) => keysWithPrefix(column, orderedKey(prefix, false)));
  return sql`((${join(ranges, ' or ')}) and ${within})`;
}

export const countrySql = (fields: RowFields, { path, countries }: ConditionOf<'country'>): Sql =>
  sql`country_of(${addressOf(fields, path)}) = any(${countries}::text[])`;

/** The address in a field as inet, null where it holds none. A key has all of it, so the document need not be read. */
function addressOf(fields: RowFields, path: Path): Sql {
  if (fields.isId(path)) return sql`address_of(${fields.id})`;
  const column = fields.keyOf(path);
  return column ? sql`key_address(${column})` : sql`address_of(${fields.value(path)} #>> '{}')`;
}
