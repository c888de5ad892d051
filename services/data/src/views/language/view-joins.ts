import { isName } from '../../catalog/names';
import { nameRule } from '@granary/shared/names';
import type { JsonValue } from '@granary/shared/json/value';
import type { Path } from '../../query/language/condition';
import { parsePath } from '../../query/language/path';
import { invalidQuery, overLimit } from '../../query/language/query-error';
import { ParentReferences } from '../../query/language/reference';
import { refuseUnknown } from '../../query/language/paging';

/** Joins of one view. */
export const viewJoinsMax = 4;
/** Fields that one join compares. */
export const joinFieldsMax = 16;

/** A field of the joined collection, which equals a field of the base or of an earlier join. */
export interface JoinField {
  path: Path;
  /** The alias of an earlier join; undefined for the base. */
  from: string | undefined;
  to: Path;
}

/** A collection whose documents become a member of the rows of a view, one row for each pair. */
export interface ViewJoin {
  /** The name of the member. */
  alias: string;
  collection: string;
  /** Whether a row without a partner is left out; else the member is null there. */
  isInner: boolean;
  on: readonly JoinField[];
}

const members = new Set(['collection', 'on', 'type']);

/** The member `join` of a view's query. Throws INVALID_QUERY with the place, LIMIT_EXCEEDED. */
export function parseViewJoins(value: JsonValue | undefined): ViewJoin[] {
  if (value === undefined || value === null) return [];
  if (!(value instanceof Map)) throw invalidQuery('query.join', 'must be an object of joins by their aliases');
  if (value.size > viewJoinsMax) throw overLimit('query.join', `may hold at most ${viewJoinsMax} joins`);
  const aliases = [...value.keys()];
  return [...value].map(([alias, join], index) =>
    parseViewJoin(alias, join, { earlier: aliases.slice(0, index), later: aliases.slice(index + 1) }),
  );
}

/** The aliases of the joins around one. Its own is that of a field which it may refer to. */
interface Around {
  earlier: readonly string[];
  later: readonly string[];
}

function parseViewJoin(alias: string, value: JsonValue, around: Around): ViewJoin {
  const location = `query.join.${alias}`;
  if (alias === '' || alias.includes('.') || alias.startsWith('$') || /^-?\d+$/.test(alias)) {
    throw invalidQuery(
      location,
      'must be a name that is not empty or a number, holds no dot and does not begin with $',
    );
  }
  if (!(value instanceof Map))
    throw invalidQuery(location, 'must be an object with on, and perhaps collection and type');
  refuseUnknown(value.keys(), members, location);
  const collection = value.get('collection') ?? alias;
  if (typeof collection !== 'string' || !isName(collection)) throw invalidQuery(`${location}.collection`, nameRule);
  const type = value.get('type') ?? 'left';
  if (type !== 'left' && type !== 'inner') throw invalidQuery(`${location}.type`, 'must be left or inner');
  const on = value.get('on') ?? null;
  if (!(on instanceof Map) || on.size === 0) {
    throw invalidQuery(`${location}.on`, 'must be an object of the form {"field": "$data.field"}');
  }
  if (on.size > joinFieldsMax) throw overLimit(`${location}.on`, `may hold at most ${joinFieldsMax} fields`);
  const fields = [...on].map(([name, to]) => parseJoinField(name, to, `${location}.on.${name}`, around));
  return { alias, collection, isInner: type === 'inner', on: fields };
}

function parseJoinField(name: string, operand: JsonValue, location: string, { earlier, later }: Around): JoinField {
  const path = parsePath(name, location);
  const to = new ParentReferences().pathOf(operand, location);
  if (!to) throw invalidQuery(location, 'must be a reference to a field: $data.<field>, or $data.<alias>.<field>');
  const [first, ...rest] = to;
  if (later.includes(first!)) throw invalidQuery(location, `refers to ${first}, which is not joined before it`);
  if (!earlier.includes(first!)) return { path, from: undefined, to };
  if (rest.length === 0) throw invalidQuery(location, `must name a field of ${first}`);
  return { path, from: first, to: rest };
}
