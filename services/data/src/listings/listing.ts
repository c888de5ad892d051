import { invalid } from '@granary/shared/errors';
import { rows, type Queryable } from '@granary/shared/postgres/pool';
import { sql, type Sql } from '@granary/shared/postgres/sql';
import { INVALID_CURSOR } from '../query/language/paging';

/** Entries of one page of a listing, at most, and about the bytes of its JSON. */
export const listingRowsMax = 1_000;
export const listingBytesMax = 1024 * 1024;
const cursorLengthMax = 2_000;

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

interface ListingSource<T> {
  columns: Sql;
  /** Relation and conditions. */
  from: Sql;
  /** Column names or expressions over `from` that are unique together, in the order of the listing. */
  key: ReadonlyArray<{ column: Sql; type: 'text' | 'number' }>;
  /** About the bytes of the JSON of an entry, without those that every entry has. */
  bytes: Sql;
  keyOf: (entry: T) => ReadonlyArray<string | bigint>;
}

/** Names of members, times and numbers of one entry, and short texts that have limits of their own. */
const entryBytes = 1_024;

/**
 * One page of a listing: as many entries as fit, cut in Postgres, so that no more than a page is ever loaded. There is
 * at least one entry where there is any. Throws INVALID_CURSOR.
 */
export async function listPage<T extends object>(
  db: Queryable,
  { columns, from, key, bytes, keyOf }: ListingSource<T>,
  request: ListingRequest,
): Promise<Listing<T>> {
  const limit = Math.min(Math.max(request.limit ?? listingRowsMax, 1), listingRowsMax);
  const order = joined(key.map(({ column }) => column));
  const types = key.map(({ type }) => type);
  const after = request.cursor ? parseCursor(request.cursor, types) : undefined;
  const beyond = after ? sql`and (${order}) > (${joined(after.map((value) => sql`${value}`))})` : sql``;
  const page = await rows<T & { has_next: boolean }>(
    db,
    sql`select * from (
          select ${columns}, row_number() over listed as place, lead(true, 1, false) over listed as has_next,
            sum(${bytes} + ${entryBytes}) over (listed rows unbounded preceding) as bytes_so_far
          from ${from} ${beyond} window listed as (order by ${order})) page
        where place <= ${limit} and (bytes_so_far <= ${listingBytesMax} or place = 1) order by place`,
  );
  const last = page.at(-1);
  const nextCursor = last?.has_next ? encodeCursor(keyOf(last)) : '';
  return { entries: page, nextCursor };
}

const joined = (parts: readonly Sql[]): Sql => parts.reduce((all, part) => sql`${all}, ${part}`);

const encodeCursor = (key: ReadonlyArray<string | bigint>): string =>
  Buffer.from(JSON.stringify(key.map(String))).toString('base64url');

function parseCursor(text: string, types: ReadonlyArray<'text' | 'number'>): string[] {
  try {
    if (text.length <= cursorLengthMax && /^[A-Za-z0-9_-]+$/.test(text)) {
      const key = JSON.parse(Buffer.from(text, 'base64url').toString()) as unknown;
      const isKey =
        Array.isArray(key) && key.length === types.length && types.every((type, index) => isOf(type, key[index]));
      if (isKey) return key as string[];
    }
  } catch {
    // Not JSON: refused below.
  }
  throw invalid('The cursor is not valid', { cursor: ['is not one of this listing'] }, INVALID_CURSOR);
}

/** Whether Postgres can compare a value with a column of this type. */
function isOf(type: 'text' | 'number', value: unknown): boolean {
  if (typeof value !== 'string') return false;
  return type === 'number' ? /^\d{1,18}$/.test(value) : !value.includes('\0');
}
