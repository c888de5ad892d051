import { hash } from 'node:crypto';
import { arrayStep } from '../../json/document';
import { computedDigitsMax } from '@granary/shared/json/number-range';
import { JsonReader } from '@granary/shared/json/reader';
import { readJson, readValue, toText, type JsonValue } from '@granary/shared/json/value';
import { conditionText, type Condition, type Path } from '../language/condition';
import type { Relation } from './relation';
import { invalidCursor } from '../language/paging';
import type { SortTerm } from '../language/sort';

/** The version of the format of cursors; a cursor of another version is not read. */
const formatVersion = 2;
/** A cursor has to fit a URL: where it would hold more than this, the digest of the sort values takes their place. */
const payloadBytesMax = 8 * 1024;
const digestBytes = 16;
/** A row of a view may hold whole documents below the steps of a path, and numbers that were computed. */
export const recordLimits = { maxDepth: 128, digitsMax: computedDigitsMax };

/** The place of a record in an order: JSON texts of what it is sorted by, null for missing and null, and its id. */
export interface Position {
  values: ReadonlyArray<string | null>;
  id: string;
  /** Tells the versions of one id apart where there are several. */
  version: string | null;
}

/** A place whose sort values are too long for a cursor: the record itself has them, unless it has changed. */
export interface RecordPlace {
  id: string;
  version: string | null;
  /** It is made of the sort values by digestOfValues(). */
  valuesDigest: string;
}

/** The query that a cursor belongs to. */
export interface CursorScope {
  source: Relation;
  find: Condition;
  terms: readonly SortTerm[];
  descending: boolean;
}

/** A cursor as text: base64url of a digest over the query and the place, and the place. */
export function encodeCursor(scope: CursorScope, { id, version, values }: Position): string {
  const whole = Buffer.from(JSON.stringify([id, version, ...values]));
  const isTooLong = whole.length > payloadBytesMax;
  const payload = isTooLong ? Buffer.from(JSON.stringify([id, version, { digest: digestOfValues(values) }])) : whole;
  return Buffer.concat([digestOf(scope, payload), payload]).toString('base64url');
}

/** Tells sort values from all others: base64url of 16 bytes. */
export const digestOfValues = (values: Position['values']): string =>
  hash('sha256', JSON.stringify(values), 'buffer').subarray(0, digestBytes).toString('base64url');

/** Reads a cursor of this very query. Throws INVALID_CURSOR for any other text. */
export function decodeCursor(scope: CursorScope, text: string): Position | RecordPlace {
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

/** The digest keeps no secret, so a place that somebody made up is still looked at. */
function readPosition(payload: Buffer, values: number): Position | RecordPlace | undefined {
  try {
    const read = JSON.parse(payload.toString()) as unknown;
    if (!Array.isArray(read)) return undefined;
    const [id, version, ...texts] = read as unknown[];
    if (typeof id !== 'string' || /\0|\p{Surrogate}/u.test(id)) return undefined;
    if (version !== null && !(typeof version === 'string' && /^\d{1,18}$/.test(version))) return undefined;
    const [only] = texts;
    if (texts.length === 1 && typeof only === 'object' && only !== null) {
      const { digest } = only as { digest?: unknown };
      return typeof digest === 'string' ? { id, version, valuesDigest: digest } : undefined;
    }
    if (texts.length !== values) return undefined;
    const isValue = (text: unknown): text is string | null =>
      text === null ||
      (typeof text === 'string' && toText(readJson(Buffer.from(text), recordLimits)) === text && text !== 'null');
    return texts.every(isValue) ? { id, version, values: texts } : undefined;
  } catch {
    return undefined;
  }
}

function digestOf({ source, find, terms, descending }: CursorScope, payload: Buffer): Buffer {
  const order = terms.map((term) => [term.path, term.descending, source.dates.has(term.path.join('.'))]);
  const conditions = find.kind === 'and' ? find.conditions : [find];
  // The order of conditions means nothing, and that of parameters in a URL may change on the way.
  const query = [formatVersion, source.identity, order, descending, conditions.map(conditionText).sort()];
  const bytes = Buffer.concat([Buffer.from(`${JSON.stringify(query)}\0`), payload]);
  return hash('sha256', bytes, 'buffer').subarray(0, digestBytes);
}

/** A row of a page, with its id and version where the text of the record does not tell its place. */
export interface PageRow {
  body: string | Buffer;
  id?: string;
  version?: string;
}

/** The place of a record that was read. */
export function positionOf({ terms }: Pick<CursorScope, 'terms'>, last: PageRow): Position {
  const bytes = typeof last.body === 'string' ? Buffer.from(last.body) : last.body;
  const values = terms.map(({ path }) => {
    const value = valueAt(bytes, path);
    if (value === undefined || value === null) return null;
    // All arrays have the same place in an order, and so have all objects, whatever they contain.
    if (Array.isArray(value)) return '[]';
    return value instanceof Map ? '{}' : toText(value);
  });
  // A stored text has its id, as a string.
  const id = last.id ?? (valueAt(bytes, ['id']) as string);
  return { values, id, version: last.version ?? null };
}

/** The value at a path, as Compiler.value() finds it; undefined where it leads nowhere. Nothing behind it is read. */
function valueAt(record: Buffer, path: Path): JsonValue | undefined {
  const reader = new JsonReader(record, recordLimits);
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
