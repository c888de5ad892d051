import { hash } from 'node:crypto';
import { invalid } from '@granary/shared/errors';
import { arrayStep } from '@granary/shared/json/document';
import { JsonReader } from '@granary/shared/json/reader';
import { readJson, readValue, toText, type JsonValue } from '@granary/shared/json/value';
import { join, sql, trusted, type Sql } from '@granary/shared/postgres/sql';
import { parseInstant } from '../../values/instant';
import { keyBytesMax } from '../../values/key';
import { always, never } from '../sql/filter-sql';
import type { Condition, Path } from '../language/filter';
import type { SortTerm } from './order';
import type { Source } from './relation';

export const INVALID_CURSOR = 'INVALID_CURSOR';

/** A cursor with more than this in it (the sort values of one record) is not given out: it has to fit a URL. */
const payloadBytesMax = 8 * 1024;
const digestBytes = 16;
/** A row of a view may hold whole documents below the steps of a path. */
const recordDepthMax = 128;

/** The place of a record in an order: JSON texts of what it is sorted by, null for missing and null, and its id. */
export interface Position {
  values: ReadonlyArray<string | null>;
  id: string;
  /** Tells the versions of one id apart where there are several. */
  version: string | null;
}

/** What a cursor belongs to. */
export interface CursorScope {
  source: Source;
  find: Condition;
  terms: readonly SortTerm[];
  descending: boolean;
}

/** A cursor as text: base64url of a digest over the query and the place, and the place. */
export function encodeCursor(scope: CursorScope, position: Position): string | undefined {
  const payload = Buffer.from(JSON.stringify([position.id, position.version, ...position.values]));
  if (payload.length > payloadBytesMax) return undefined;
  return Buffer.concat([digestOf(scope, payload), payload]).toString('base64url');
}

/** Reads a cursor of this very query. Throws INVALID_CURSOR for any other text. */
export function decodeCursor(scope: CursorScope, text: string): Position {
  const bytes = Buffer.from(text, 'base64url');
  const payload = bytes.subarray(digestBytes);
  const isOurs =
    bytes.length <= digestBytes + payloadBytesMax &&
    bytes.toString('base64url') === text &&
    digestOf(scope, payload).equals(bytes.subarray(0, digestBytes));
  const position = isOurs ? readPosition(payload, scope.terms.length) : undefined;
  if (!position) throw invalidCursor('is not a cursor of this query');
  return position;
}

export function invalidCursor(message: string): ReturnType<typeof invalid> {
  return invalid(`The cursor ${message}`, { cursor: [message] }, INVALID_CURSOR);
}

/** The digest keeps no secret, so a place that somebody made up is still looked at. */
function readPosition(payload: Buffer, values: number): Position | undefined {
  try {
    const read = JSON.parse(payload.toString()) as unknown;
    if (!Array.isArray(read) || read.length !== values + 2) return undefined;
    const [id, version, ...texts] = read as unknown[];
    if (typeof id !== 'string' || /\0|\p{Surrogate}/u.test(id)) return undefined;
    if (version !== null && !(typeof version === 'string' && /^\d{1,18}$/.test(version))) return undefined;
    const isValue = (text: unknown): text is string | null =>
      text === null ||
      (typeof text === 'string' &&
        toText(readJson(Buffer.from(text), { maxDepth: recordDepthMax })) === text &&
        text !== 'null');
    return texts.every(isValue) ? { id, version, values: texts } : undefined;
  } catch {
    return undefined;
  }
}

function digestOf({ source, find, terms, descending }: CursorScope, payload: Buffer): Buffer {
  const order = terms.map((term) => [term.path, term.descending, source.dates.has(term.path.join('.'))]);
  const conditions = find.kind === 'and' ? find.conditions : [find];
  // The order of conditions means nothing, and that of parameters in a URL may change on the way.
  const query = [source.identity, order, descending, conditions.map(textOf).sort()];
  const bytes = Buffer.concat([Buffer.from(`${JSON.stringify(query)}\0`), payload]);
  return hash('sha256', bytes, 'buffer').subarray(0, digestBytes);
}

const textOf = (condition: Condition): string =>
  condition.kind === 'is' && typeof condition.value === 'string'
    ? JSON.stringify(condition)
    : JSON.stringify(condition, (_, value: unknown) => (value instanceof Map ? { map: toText(value) } : value));

/** A row of a page, with its id and version where the text of the record does not tell its place. */
export interface PageRow {
  body: string | Buffer;
  id?: string;
  version?: string;
}

/** The place of a record that was read. */
export function positionOf({ source, terms }: CursorScope, last: PageRow): Position {
  const bytes = typeof last.body === 'string' ? Buffer.from(last.body) : last.body;
  const values = terms.map(({ path }) => {
    const value = valueAt(bytes, path);
    if (value === undefined || value === null) return null;
    const instant = typeof value === 'string' && source.dates.has(path.join('.')) ? parseInstant(value) : undefined;
    return instant ?? toText(value);
  });
  // A stored text has its id, as a string.
  const id = last.id ?? (valueAt(bytes, ['id']) as string);
  return { values, id, version: last.version ?? null };
}

/** The value at a path, as Compiler.value() finds it; undefined where it leads nowhere. Nothing behind it is read. */
function valueAt(record: Buffer, path: Path): JsonValue | undefined {
  const reader = new JsonReader(record, { maxDepth: recordDepthMax });
  for (const step of path) if (!goTo(reader, step)) return undefined;
  return readValue(reader);
}

/** Goes to the member or element of the next value that a step leads to; false where there is none. */
function goTo(reader: JsonReader, step: string): boolean {
  switch (reader.peekType()) {
    case 'object': {
      const key = Buffer.from(step);
      reader.enterObject();
      while (reader.nextMember()) {
        if (reader.keyIs(key)) return true;
        reader.skipValue();
      }
      return false;
    }
    case 'array': {
      let before = arrayStep(step);
      if (before === undefined) return false;
      reader.enterArray();
      while (reader.nextElement()) {
        if (before === 0) return true;
        before -= 1;
        reader.skipValue();
      }
      return false;
    }
    default:
      return false;
  }
}

/** Whether the text is that of an array or an object. */
export const isCompound = (text: string | null | undefined): boolean => /^[[{]/.test(text ?? '');

/** Whether a text may be that of a string whose key is cut, so that its key does not tell its place. */
export function mayExceedKey(text: string | null | undefined): boolean {
  if (!text?.startsWith('"')) return false;
  return Buffer.byteLength(JSON.parse(text) as string) > keyBytesMax - 4;
}

const beyond = (descending: boolean): Sql => trusted(descending ? '<' : '>');

/** Rows whose id follows that of a place, of which all else is equal. */
export function idAfter(source: Source, { id, version }: Position, descending: boolean): Sql {
  const operator = beyond(descending);
  return source.tieColumn
    ? sql`(t.id, ${source.tieColumn}) ${operator} (${id}::text, ${version ?? '0'}::int8)`
    : sql`t.id ${operator} ${id}::text`;
}

/** Rows that follow a place by a value, an array or an object or nothing of these, or by what comes after it. */
export function valueAfter(value: Sql, text: string, descending: boolean, then: Sql): Sql {
  const rank = trusted(text.startsWith('[') ? '1' : text.startsWith('{') ? '2' : '0');
  return sql`((sort_rank(${value}), ${value}) ${beyond(descending)} (${rank}, ${text}::jsonb)
    or (${value} = ${text}::jsonb and ${then}))`;
}

/** Rows that follow a place in the order by some values, whatever their types are; null comes last. */
export function rowsAfter(
  terms: ReadonlyArray<{ value: Sql; after: string | null | undefined; descending: boolean }>,
  ids: Sql,
): Sql {
  return terms.reduceRight((then, { value, after, descending }) => {
    if (after === null || after === undefined) return sql`(${value} is null and ${then})`;
    return sql`(${value} is null or ${valueAfter(value, after, descending, then)})`;
  }, ids);
}

/**
 * Rows that follow a place by their keys. Keys are scalars: a place at an array, an object or nothing comes before
 * or after all keys that are equal so far.
 */
export function keysAfter(
  keys: readonly Sql[],
  texts: ReadonlyArray<string | null>,
  id: string,
  descending: boolean,
): Sql {
  const operator = beyond(descending);
  const end = texts.findIndex((text) => text === null || isCompound(text));
  const equal = end < 0 ? keys : keys.slice(0, end);
  const bounds = texts.slice(0, equal.length).map((text) => sql`${text}::jsonb`);
  if (end < 0)
    return sql`(${join([...keys, sql`t.id`], ', ')}) ${operator} (${join([...bounds, sql`${id}::text`], ', ')})`;
  const followsAll = descending && texts[end] !== null;
  if (end === 0) return followsAll ? always : never;
  return sql`(${join(equal, ', ')}) ${operator}${followsAll ? trusted('=') : trusted('')} (${join(bounds, ', ')})`;
}
