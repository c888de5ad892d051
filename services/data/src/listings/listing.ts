import { invalid } from '@granary/shared/errors';
import { row, rows, type Connection, type Queryable } from '@granary/shared/postgres/pool';
import { sql, type Sql } from '@granary/shared/postgres/sql';
import { INVALID_CURSOR } from '../query/plan/cursor';
import { LIMIT_EXCEEDED } from '../query/language/filter';

/** Entries of one page of a listing, at most, and about the bytes of its JSON. */
export const listingRowsMax = 1_000;
export const listingBytesMax = 1024 * 1024;
const cursorLengthMax = 2_000;

/** What of a listing is asked for; without a limit as much as a page may hold. */
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
 * One page of a listing: as many entries as fit, cut in Postgres, so that no more than a page is ever loaded. There is at
 * least one entry where there is any. Throws INVALID_CURSOR.
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
  const found = await rows<T & { has_next: boolean }>(
    db,
    sql`select * from (
          select ${columns}, row_number() over listed as place, lead(true, 1, false) over listed as has_next,
            sum(${bytes} + ${entryBytes}) over (listed rows unbounded preceding) as bytes_so_far
          from ${from} ${beyond} window listed as (order by ${order})) page
        where place <= ${limit} and (bytes_so_far <= ${listingBytesMax} or place = 1) order by place`,
  );
  const last = found.at(-1);
  const nextCursor = last?.has_next ? encodeCursor(keyOf(last)) : '';
  return { entries: found, nextCursor };
}

const joined = (parts: readonly Sql[]): Sql => parts.reduce((all, part) => sql`${all}, ${part}`);

const encodeCursor = (key: ReadonlyArray<string | bigint>): string =>
  Buffer.from(JSON.stringify(key.map(String))).toString('base64url');

function parseCursor(text: string, types: ReadonlyArray<'text' | 'number'>): string[] {
  try {
    if (text.length <= cursorLengthMax && /^[A-Za-z0-9_-]+$/.test(text)) {
      const key = JSON.parse(Buffer.from(text, 'base64url').toString()) as unknown;
      const isKey = Array.isArray(key) && key.length === types.length && types.every((type, at) => isOf(type, key[at]));
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

/** Bytes of all definitions of an app together, at most: queries, views, schemas of collections, indexes. */
export const definitionBytesMax = 8 * 1024 * 1024;

/**
 * Refuses a change after which the definitions of an app are too large together; called in its transaction, under the lock
 * of the app. Lengths are read without the texts. Throws LIMIT_EXCEEDED.
 */
export async function checkDefinitionBytes(tx: Connection, appNumber: bigint): Promise<void> {
  const { bytes } = (await row<{ bytes: bigint }>(
    tx,
    sql`select (
          (select coalesce(sum(octet_length(base_query_text) + octet_length(parameters_text) + octet_length(description)
              + coalesce(octet_length(example_request_text), 0) + coalesce(octet_length(example_response_text), 0)), 0)
            from query where app_number = ${appNumber})
          + (select coalesce(sum(octet_length(query_text) + octet_length(variables_text)), 0)
            from view where app_number = ${appNumber})
          + (select coalesce(sum(octet_length(schema_text)), 0)
            from collection where app_number = ${appNumber} and deleted_at is null)
          + (select coalesce(sum(octet_length(i.name) + octet_length(i.field_name)
              + coalesce(octet_length(array_to_string(i.fields, ',')), 0)), 0)
            from document_index i join collection c on c.number = i.collection_number
            where i.app_number = ${appNumber} and c.deleted_at is null))::int8 as bytes`,
  ))!;
  if (bytes <= BigInt(definitionBytesMax)) return;
  const message = `The queries, views, schemas and indexes of an app may have ${definitionBytesMax} bytes together`;
  throw invalid(message, {}, LIMIT_EXCEEDED);
}
