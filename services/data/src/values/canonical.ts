import { createHash } from 'node:crypto';
import { scalarAt, textAt, type Capture } from '../json/document';
import { canonicalJson } from '@granary/shared/json/canonical';
import { JsonNumber, readJson, type JsonValue } from '@granary/shared/json/value';
import { canonicalDecimal } from './decimal';
import { parseInstant } from './instant';

/**
 * The value of a unique field as text with its type before it, so that 1 and "1" differ and 1 and 1.0 do not; long
 * ones as SHA-256. Null where nothing can collide: missing and null.
 */
export function uniqueText(bytes: Buffer, capture: Capture | undefined, isDate: boolean): string | null {
  if (capture === undefined || capture.type === 'null') return null;
  return boundedText(canonicalText(valueAt(bytes, capture), isDate));
}

const boundedText = (text: string): string =>
  text.length <= 200 ? text : `h:${createHash('sha256').update(text).digest('hex')}`;

/** The unique value of several fields together, made from those of each; null where one is missing. */
export function joinedUnique(parts: ReadonlyArray<string | null>): string | null {
  if (parts.length === 1) return parts[0]!;
  if (parts.includes(null)) return null;
  // The length before each part keeps two texts from being divided in another way.
  return boundedText(`c:${parts.map((part) => `${part!.length}:${part}`).join('')}`);
}

export function valueAt(bytes: Buffer, capture: Capture): JsonValue {
  const scalar = scalarAt(bytes, capture);
  return scalar === undefined ? readJson(Buffer.from(textAt(bytes, capture)), { maxDepth: 64 }) : scalar;
}

/** One text for each JSON value: numbers by value, objects whatever the order of their keys, dates by instant. */
export function canonicalText(value: JsonValue, isDate: boolean): string {
  if (value === null) return 'null';
  if (typeof value === 'string') {
    const instant = isDate ? parseInstant(value) : undefined;
    return instant === undefined ? `s:${value}` : `d:${instant}`;
  }
  if (typeof value === 'boolean') return `b:${value}`;
  if (value instanceof JsonNumber) return `n:${canonicalDecimal(value.text)}`;
  // Strings inside are not marked again: that would double their marks at every level.
  return `${Array.isArray(value) ? 'a' : 'o'}:${canonicalJson(value, ({ text }) => canonicalDecimal(text))}`;
}
