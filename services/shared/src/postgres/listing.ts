import { invalid } from '../errors';
import { rows, type Queryable } from './pool';
import { join, sql, type Sql } from './sql';

export const INVALID_CURSOR = 'INVALID_CURSOR';

/** Entries of one page of a listing, at most, and about the bytes of its JSON. */
export const listingRowsMax = 1_000;
export const listingBytesMax = 1024 * 1024;
const cursorLengthMax = 2_000;

/** A limit that a request of another service must have. Throws VALIDATION_FAILED. */
export function checkListingLimit(limit: number): number {
  if (limit >= 1 && limit <= listingRowsMax) return limit;
  throw invalid('The limit is out of bounds', { limit: [`must be from 1 to ${listingRowsMax}`] });
}

/** The page of a listing that is requested; without a limit as many entries as a page may have. */
export interface ListingRequest {
  limit?: number;
  cursor?: string;
}

export interface Listing<T> {
  entries: T[];
  /** Empty on the last page. */
  nextCursor: string;
}

/** The type of a column of a key. A `time` must have whole milliseconds, which a Date can carry. */
export type KeyType = 'text' | 'number' | 'time';
type KeyValue = string | bigint | Date;

interface ListingSource<T> {
  columns: Sql;
  /** Relation and conditions. */
  from: Sql;
  /** Column names or expressions over `from` that are unique together, in the order of the listing. */
  key: ReadonlyArray<{ column: Sql; type: KeyType }>;
  /** Whether the entry with the greatest key comes first. */
  isDescending?: boolean;
  /** About the bytes of the JSON of an entry, without those that every entry has. */
  bytes: Sql;
  keyOf: (entry: T) => readonly KeyValue[];
}

/** Names of members, times and numbers of one entry, and short texts that have limits of their own. */
const entryBytes = 1_024;

/**
 * One page of a listing: as many entries as fit, cut in Postgres, so that no more than a page is ever loaded. There is
 * at least one entry where there is any. Throws INVALID_CURSOR.
 */
export async function listPage<T extends object>(
  db: Queryable,
  { columns, from, key, isDescending = false, bytes, keyOf }: ListingSource<T>,
  request: ListingRequest,
): Promise<Listing<T>> {
  const limit = Math.min(Math.max(request.limit ?? listingRowsMax, 1), listingRowsMax);
  const names = key.map(({ column }) => column);
  const order = join(isDescending ? names.map((name) => sql`${name} desc`) : names, ', ');
  const types = key.map(({ type }) => type);
  const after = request.cursor ? parseCursor(request.cursor, types) : undefined;
  const isBeyond = isDescending ? sql`<` : sql`>`;
  const values = after?.map((value) => sql`${value}`);
  const beyond = values ? sql`and (${join(names, ', ')}) ${isBeyond} (${join(values, ', ')})` : sql``;
  // The inner limit has the planner prefer an index in this order to sorting all entries.
  const page = await rows<T & { has_next: boolean }>(
    db,
    sql`select * from (
          select ${columns}, row_number() over listed as place, lead(true, 1, false) over listed as has_next,
            sum(${bytes} + ${entryBytes}) over (listed rows unbounded preceding) as bytes_so_far
          from ${from} ${beyond} window listed as (order by ${order}) order by ${order} limit ${limit + 1}) page
        where place <= ${limit} and (bytes_so_far <= ${listingBytesMax} or place = 1) order by place`,
  );
  const last = page.at(-1);
  const nextCursor = last?.has_next ? encodeCursor(keyOf(last)) : '';
  return { entries: page, nextCursor };
}

/** The cursor of the page after an entry with this key. */
export const encodeCursor = (key: readonly KeyValue[]): string =>
  Buffer.from(JSON.stringify(key.map((value) => String(value instanceof Date ? value.getTime() : value)))).toString(
    'base64url',
  );

/** The key in a cursor, as values that Postgres can compare with columns of these types. Throws INVALID_CURSOR. */
export function parseCursor(text: string, types: readonly KeyType[]): Array<string | Date> {
  try {
    if (text.length <= cursorLengthMax && /^[A-Za-z0-9_-]+$/.test(text)) {
      const key = JSON.parse(Buffer.from(text, 'base64url').toString()) as unknown;
      const isKey =
        Array.isArray(key) && key.length === types.length && types.every((type, index) => isOf(type, key[index]));
      if (isKey) {
        const values = key as string[];
        return values.map((value, index) => (types[index] === 'time' ? new Date(Number(value)) : value));
      }
    }
  } catch {
    // Not JSON: refused below.
  }
  throw invalid('The cursor is not valid', { cursor: ['is not one of this listing'] }, INVALID_CURSOR);
}

/** Digits that fit into a bigint; of milliseconds since 1970, those of a Date that Postgres can store. */
const digits = { number: /^\d{1,18}$/, time: /^\d{1,15}$/ };

/** Whether Postgres can compare a value with a column of this type. */
function isOf(type: KeyType, value: unknown): boolean {
  if (typeof value !== 'string') return false;
  return type === 'text' ? !value.includes('\0') : digits[type].test(value);
}
