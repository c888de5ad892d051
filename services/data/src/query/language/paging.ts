import { invalid, ServiceError } from '@granary/shared/errors';
import { compileProjection, type Projection } from '../../json/project';
import { jsonErrorPath, translateJsonErrors } from '@granary/shared/json/service-error';
import { JsonNumber, readJson, type JsonValue } from '@granary/shared/json/value';
import { INVALID_CURSOR } from '@granary/shared/postgres/listing';
import { INVALID_QUERY, invalidQuery, overLimit } from './query-error';
import { parseSort, type SortTerm } from './sort';

export const limitDefault = 100;
export const limitMax = 10_000;
export const offsetMax = 1_000_000;

/** Levels of a body: a `find` of 16, with what stands around it. */
export const bodyDepthMax = 64;

/** Reads JSON text of a caller; the messages call it `location`. Throws a ServiceError. */
export function readJsonText(bytes: Buffer, location: string): JsonValue {
  return translated(location, () => readJson(bytes, { maxDepth: bodyDepthMax }));
}

/** A `select` in any of its forms, undefined for everything. Throws INVALID_QUERY. */
export function parseSelect(select: JsonValue | undefined, location = 'select'): Projection {
  return translated(location, () => compileProjection(select ?? null));
}

function translated<T>(location: string, read: () => T): T {
  return translateJsonErrors(read, (error) => {
    const path = jsonErrorPath(location, error);
    return invalid(`${path}: ${error.message}`, { [path]: [error.message] }, INVALID_QUERY);
  });
}

/** `limit`: 1 to 10,000, by default 100. */
export function parseLimit(value: JsonValue | undefined, location = 'limit', fallback = limitDefault): number {
  if (value === undefined || value === null) return fallback;
  const limit = wholeNumber(value, location);
  if (limit < 1) throw invalidQuery(location, 'must be at least 1');
  if (limit > limitMax) throw overLimit(location, `may be at most ${limitMax}`);
  return limit;
}

/** `offset`: 0 to 1,000,000. */
export function parseOffset(value: JsonValue | undefined, location = 'offset'): number {
  if (value === undefined || value === null) return 0;
  const offset = wholeNumber(value, location);
  if (offset < 0) throw invalidQuery(location, 'must be at least 0');
  if (offset > offsetMax) throw overLimit(location, `may be at most ${offsetMax}`);
  return offset;
}

function wholeNumber(value: JsonValue, location: string): number {
  if (value instanceof JsonNumber && value.isInteger) return value.toNumber();
  throw invalidQuery(location, 'must be a whole number');
}

/** A whole number from a URL, for the functions above; other text is left to them to refuse. */
export function numberOfText(text: string | undefined): JsonValue | undefined {
  return text !== undefined && /^-?\d{1,18}$/.test(text) ? new JsonNumber(text) : text;
}

export function parseCount(value: JsonValue | undefined, location = 'count'): 'exact' | 'none' {
  if (value === undefined || value === null) return 'exact';
  if (value !== 'exact' && value !== 'none') throw invalidQuery(location, 'must be exact or none');
  return value;
}

/** Sort terms from text (`-rating,title`) or a list of such fields; none for undefined. */
export function parseSortList(value: JsonValue | undefined, location = 'sort'): SortTerm[] {
  if (value === undefined || value === null || value === '') return [];
  if (typeof value === 'string')
    return parseSort(
      value.split(',').map((name) => name.trim()),
      location,
    );
  if (!Array.isArray(value)) throw invalidQuery(location, 'must be a field or a list of fields');
  return parseSort(value, location);
}

export function invalidCursor(message: string): ReturnType<typeof invalid> {
  return invalid(`The cursor ${message}`, { cursor: [message] }, INVALID_CURSOR);
}

/** `cursor`: the text that an earlier page gave, which takes the place of an offset. */
export function parseCursor(value: JsonValue | undefined, offset: number): string | undefined {
  if (value === undefined || value === null) return undefined;
  if (typeof value !== 'string') throw invalidCursor('must be text');
  if (offset > 0) throw invalidQuery('offset', 'cannot stand beside cursor');
  return value;
}

/** Refuses members that are not known. */
export function refuseUnknown(keys: Iterable<string>, knownKeys: ReadonlySet<string>, location = ''): void {
  for (const key of keys)
    if (!knownKeys.has(key)) throw invalidQuery(location === '' ? key : `${location}.${key}`, 'is not a known field');
}

/** The caller showed no key that may read what is private. */
export function needsKey(what: string): ServiceError {
  return new ServiceError('UNAUTHENTICATED', 'UNAUTHENTICATED', `The ${what} is private: a key with Read is needed`);
}
