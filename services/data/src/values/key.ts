import { createHash } from 'node:crypto';
import { scalarAt, textAt, type Capture, type Extent } from '@granary/shared/json/document';
import { JsonNumber, readJson, type JsonValue } from '@granary/shared/json/value';
import type { FieldType, IndexDescriptor } from '../catalog/collection';
import { canonicalDecimal } from './decimal';
import { parseInstant } from './instant';

/** A key holds so many bytes of a string: a btree entry has no room for more than 2,700, and few strings need it. */
export const keyBytesMax = 256;

/** The longest head of a string that fits a key: cut by bytes, at the border of a character. */
export function cutForKey(text: string): string {
  if (text.length * 3 <= keyBytesMax) return text;
  const bytes = Buffer.from(text);
  if (bytes.length <= keyBytesMax) return text;
  let end = keyBytesMax;
  while ((bytes[end]! & 0xc0) === 0x80) end -= 1;
  return bytes.toString('utf8', 0, end);
}

/** A key as JSON text: of its own, or where it stands in the buffer that was read, which most scalars do as they are. */
export type Key = string | Extent;

/**
 * The key of an indexed field: the scalar, strings cut; for a date the number of its instant. Null for missing, null,
 * arrays and objects, which no btree holds.
 */
export function keyOf(bytes: Buffer, capture: Capture | undefined, type: FieldType): Key | null {
  switch (capture?.type) {
    case 'string':
      // With its quotes, and escapes that only make it longer.
      if (type !== 'date' && capture.end - capture.start <= keyBytesMax + 2) return capture;
      return keyOfString(scalarAt(bytes, capture) as string, type);
    case 'number':
    case 'boolean':
      return capture;
    default:
      return null;
  }
}

/**
 * The keys of a document in one array, for an object of each would be copied by V8 while a bulk waits. A key has two
 * places: in the first its text, if it has one of its own, or null for none; else it stands from the first up to the
 * second.
 */
export type FlatKeys = Array<string | number | null>;

export const noKeys = (count: number): FlatKeys => new Array<null>(2 * count).fill(null);

export function putKey(keys: FlatKeys, at: number, key: Key | null): void {
  if (key === null || typeof key === 'string') {
    keys[2 * at] = key;
  } else {
    keys[2 * at] = key.start;
    keys[2 * at + 1] = key.end;
  }
}

export function keyAt(keys: Readonly<FlatKeys>, at: number): Key | null {
  const start = keys[2 * at] ?? null;
  return typeof start === 'number' ? { start, end: keys[2 * at + 1] as number } : start;
}

/** The text of a key of a buffer. */
export const keyText = (bytes: Buffer, key: Key | null | undefined): string | null =>
  key === null || key === undefined || typeof key === 'string' ? (key ?? null) : textAt(bytes, key);

function keyOfString(value: string, type: FieldType): string {
  const instant = type === 'date' ? parseInstant(value) : undefined;
  return instant ?? JSON.stringify(cutForKey(value));
}

/**
 * The value of a unique field as text with its type before it, so that 1 and "1" differ and 1 and 1.0 do not; long
 * ones as SHA-256. Null where nothing can collide: missing and null.
 */
export function uniqueText(bytes: Buffer, capture: Capture | undefined, type: FieldType): string | null {
  if (capture === undefined || capture.type === 'null') return null;
  return boundedText(canonicalText(valueAt(bytes, capture), type));
}

const boundedText = (text: string): string =>
  text.length <= 200 ? text : `h:${createHash('sha256').update(text).digest('hex')}`;

/**
 * Puts the unique value of a composite, made from those of its parts, to the first of them; null where one is missing.
 * `uniques` is changed and given back.
 */
export function joinUniques(
  indexes: ReadonlyArray<Pick<IndexDescriptor, 'uniqueParts'>>,
  uniques: Array<string | null>,
): Array<string | null> {
  for (let at = 0; at < indexes.length; at += 1) {
    const { uniqueParts } = indexes[at]!;
    if (uniqueParts < 2) continue;
    const parts = uniques.splice(at, uniqueParts, ...Array<null>(uniqueParts).fill(null));
    if (parts.some((part) => part === null)) continue;
    // The length before each part keeps two texts from being divided in another way.
    uniques[at] = boundedText(`c:${parts.map((part) => `${part!.length}:${part}`).join('')}`);
  }
  return uniques;
}

export function valueAt(bytes: Buffer, capture: Capture): JsonValue {
  const scalar = scalarAt(bytes, capture);
  return scalar === undefined ? readJson(Buffer.from(textAt(bytes, capture)), { maxDepth: 64 }) : scalar;
}

/** One text for each JSON value: numbers by value, objects whatever the order of their keys, dates by instant. */
export function canonicalText(value: JsonValue, type: FieldType = 'any'): string {
  if (value === null) return 'null';
  if (typeof value === 'string') {
    const instant = type === 'date' ? parseInstant(value) : undefined;
    return instant === undefined ? `s:${value}` : `d:${instant}`;
  }
  if (typeof value === 'boolean') return `b:${value}`;
  if (value instanceof JsonNumber) return `n:${canonicalDecimal(value.text)}`;
  return `${Array.isArray(value) ? 'a' : 'o'}:${canonicalJson(value)}`;
}

/** JSON with one text for each value. What is inside is not quoted again: that would double it at every level. */
function canonicalJson(value: JsonValue): string {
  if (value instanceof JsonNumber) return canonicalDecimal(value.text);
  if (Array.isArray(value)) return `[${value.map(canonicalJson).join(',')}]`;
  if (!(value instanceof Map)) return JSON.stringify(value);
  const members = [...value].sort(([a], [b]) => (a < b ? -1 : 1));
  return `{${members.map(([key, member]) => `${JSON.stringify(key)}:${canonicalJson(member)}`).join(',')}}`;
}
