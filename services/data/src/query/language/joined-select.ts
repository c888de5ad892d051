import { compileProjection, type Projection } from '../../json/project';
import type { JsonValue } from '@granary/shared/json/value';
import { parseSelect } from './paging';

/** The parts that are kept of records to which joins add members. */
export interface JoinedSelect {
  /** The parts that are kept of the stored record. */
  stored: Projection;
  /** The parts that are kept of the record with its new members, where the select names one of them; else `all`. */
  whole: Projection;
  /** Removes the fields that have the name of a join. */
  withoutAliases: Projection;
  aliases: readonly string[];
}

/**
 * A `select` of records with joins. It names fields; the joins, which are asked for elsewhere, stay in the record
 * unless it excludes them. Throws INVALID_QUERY.
 */
export function parseJoinedSelect(
  select: JsonValue | undefined,
  aliases: readonly string[],
  location: string,
): JoinedSelect {
  const withoutAliases =
    aliases.length === 0 ? 'all' : compileProjection(new Map(aliases.map((alias) => [alias, false] as const)));
  const projection = parseSelect(select, location);
  const named = new Set(namesOf(select).map((name) => name.split('.')[0]!));
  const unnamed = aliases.filter((alias) => !named.has(alias));
  if (unnamed.length === aliases.length) return { stored: projection, whole: 'all', withoutAliases, aliases };
  const whole = parseSelect(keepsNamed(projection) ? withNames(select, unnamed) : select, location);
  return { stored: 'all', whole, withoutAliases, aliases };
}

const keepsNamed = (projection: Projection): boolean => typeof projection === 'object' && projection.keeps === 'named';

/** The paths that a select names, whichever form it has. */
function namesOf(select: JsonValue | undefined): string[] {
  if (select instanceof Map) return [...select.keys()];
  const names = typeof select === 'string' ? select.split(',') : Array.isArray(select) ? select : [];
  return names.flatMap((name) => (typeof name === 'string' ? [name.trim()] : []));
}

function withNames(select: JsonValue | undefined, names: readonly string[]): JsonValue {
  if (select instanceof Map) return new Map([...select, ...names.map((name) => [name, true] as const)]);
  return [...namesOf(select), ...names];
}
