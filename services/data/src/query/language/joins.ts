import type { JsonObject, JsonValue } from '@granary/shared/json/value';
import { nameRule } from '@granary/shared/names';
import { isName } from '../../catalog/names';
import { didYouMean } from '../../catalog/near-collection';
import type { Condition } from './condition';
import { parseJoinedSelect, type JoinedSelect } from './joined-select';
import { parseName } from './path';
import { invalidQuery, overLimit } from './query-error';
import type { ParentReferences } from './reference';

/** Joins of one query, and how deep they nest. */
export const joinsMax = 16;
export const joinLevelsMax = 4;
/** Records that one join gives a record. */
export const joinedRecordsMax = 1_000;

/** Records of another collection that become a member of each record. */
export interface Join {
  /** The name of the member. */
  alias: string;
  /** The place of the join in messages. */
  at: string;
  /** The collection, as the query names it. */
  model: string;
  /** Whether the member is an array, or the first record by id and null where there is none. */
  many: boolean;
  find: Condition;
  joins: readonly Join[];
  select: JoinedSelect;
}

/** An object beside conditions that is a join, and no conditions on the fields below a path. */
export const isJoin = (value: JsonValue): value is JsonObject =>
  value instanceof Map && value.has('resolve') && value.has('model');

const joinMembers = new Set(['resolve', 'model', 'many']);
const resolveMembers = new Set(['find', 'select']);

/** A join of which the `find` is not parsed yet. */
export interface JoinParts extends Pick<Join, 'alias' | 'at' | 'model' | 'many'> {
  find: JsonValue | undefined;
  select: JsonValue | undefined;
}

/** The parts of `"alias": {"resolve": {"find", "select"}, "model", "many"}`. Throws INVALID_QUERY. */
export function parseJoinParts(alias: string, value: JsonObject, location: string): JoinParts {
  const { path, operator } = parseName(alias, location);
  if (path.length > 1 || operator) throw invalidQuery(location, 'is a join, whose name must be one step');
  for (const name of value.keys()) {
    if (!joinMembers.has(name)) throw invalidQuery(`${location}.${name}`, 'is not a known member of a join');
  }
  const model = value.get('model');
  if (typeof model !== 'string') throw invalidQuery(`${location}.model`, 'must be the name of a collection');
  const many = value.get('many') ?? true;
  if (typeof many !== 'boolean') throw invalidQuery(`${location}.many`, 'must be true or false');
  const resolve = value.get('resolve') ?? null;
  if (!(resolve instanceof Map)) throw invalidQuery(`${location}.resolve`, 'must be an object');
  for (const name of resolve.keys()) {
    if (!resolveMembers.has(name))
      throw invalidQuery(`${location}.resolve.${name}`, 'is not a known member of resolve');
  }
  return { alias, at: location, model, many, find: resolve.get('find'), select: resolve.get('select') };
}

/** A join of its parts, with its parsed `find`. */
export function makeJoin(parts: JoinParts, find: Condition, joins: readonly Join[]): Join {
  const { alias, at: location, model, many } = parts;
  const aliases = joins.map((join) => join.alias);
  const select = parseJoinedSelect(parts.select, aliases, `${location}.resolve.select`);
  return { alias, at: location, model, many, find, joins, select };
}

export function assertJoinLimits(count: number, level: number, location: string): void {
  if (count > joinsMax) throw overLimit(location, `is beyond the ${joinsMax} joins that a query may have`);
  if (level > joinLevelsMax) throw overLimit(location, `is beyond the ${joinLevelsMax} levels that joins may nest`);
}

/**
 * Refuses two joins of one name, and a reference to what another join adds: references are to the fields that are
 * stored, of which the join's own name may be one.
 */
export function assertDistinct(joins: ReadonlyArray<{ join: Join; references: ParentReferences }>): void {
  const aliases = new Set<string>();
  for (const { join } of joins) {
    if (aliases.has(join.alias)) throw invalidQuery(join.at, 'is the second join of this name');
    aliases.add(join.alias);
  }
  for (const { join, references } of joins) {
    for (const { path, at: location } of references.found) {
      if (path[0] !== join.alias && aliases.has(path[0]!)) {
        throw invalidQuery(location, `refers to the join ${path[0]}; only stored fields can be referred to`);
      }
    }
  }
}

/** All joins of a query, those in others too. */
export const allJoins = (joins: readonly Join[]): Join[] => joins.flatMap((join) => [join, ...allJoins(join.joins)]);

/** The name of the collection of a join: `collection`, or `app::collection` with the caller's app. */
export function modelName(appId: string, { model, at: location }: Pick<Join, 'model' | 'at'>): string {
  const separator = model.indexOf('::');
  if (separator >= 0 && model.slice(0, separator) !== appId) {
    throw invalidQuery(`${location}.model`, 'names a collection of another app');
  }
  const name = separator < 0 ? model : model.slice(separator + 2);
  if (!isName(name)) throw invalidQuery(`${location}.model`, nameRule);
  return name;
}

/** The error for a join with a collection that the app does not have; `near` is a name that it may be meant to be. */
export const unknownModel = (location: string, name: string, near?: string): ReturnType<typeof invalidQuery> =>
  invalidQuery(`${location}.model`, `names no collection of the app: ${name}${didYouMean(near)}`);
