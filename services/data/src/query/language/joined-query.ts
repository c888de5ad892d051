import type { Projection } from '../../json/project';
import type { JsonValue } from '@granary/shared/json/value';
import { parseQuery, type Query } from './filter';
import { parseJoinedSelect, type JoinedSelect } from './joined-select';
import { parseSelect } from './paging';

/** The parsed `find` and `select` of a request. */
export interface FindAndSelect extends Query {
  /** The parsed `select` where the records have no joins, else `all`. */
  projection: Projection;
  /** The parsed `select` where the records have joins, else undefined. */
  joinedSelect: JoinedSelect | undefined;
}

/** A `find` that may have joins, and the `select` of its records. Throws INVALID_QUERY, LIMIT_EXCEEDED. */
export function parseFindAndSelect(
  find: JsonValue | undefined,
  select: JsonValue | undefined,
  locations = { find: 'find', select: 'select' },
): FindAndSelect {
  const { find: condition, joins, conditionCount } = parseQuery(find, locations.find);
  if (joins.length === 0) {
    return {
      find: condition,
      joins,
      conditionCount,
      projection: parseSelect(select, locations.select),
      joinedSelect: undefined,
    };
  }
  const aliases = joins.map(({ alias }) => alias);
  const joinedSelect = parseJoinedSelect(select, aliases, locations.select);
  return { find: condition, joins, conditionCount, projection: 'all', joinedSelect };
}
