import { ServiceError } from '@granary/shared/errors';
import { project, type Projection } from '@granary/shared/json/project';
import { row, rows, type Queryable } from '@granary/shared/postgres/pool';
import { sqlState } from '@granary/shared/postgres/errors';
import { sql, trusted, type Sql } from '@granary/shared/postgres/sql';
import { Compiler } from './compile';
import { decodeCursor, encodeCursor, positionOf } from './cursor';
import { isAll } from './find';
import { decidingTerms, pageStatement, sortedPage, type PageRequest } from './order';
import { fixedFields, sourceFor } from './serving';
import type { Source } from './source';

export const RESULT_TOO_LARGE = 'RESULT_TOO_LARGE';
export const FIELD_NOT_INDEXED = 'FIELD_NOT_INDEXED';

/** Bytes of the texts that one answer is made of, at most. */
export const resultBytesMax = 32 * 1024 * 1024;
/** Rows before a page that may be passed over among the short reads. */
const shortOffsetMax = 1_000;
/** A source that is smaller by some writes of the next moment cannot exceed it. */
const surelySmallBytes = BigInt(resultBytesMax / 2);

export interface ReadOptions extends Omit<PageRequest, 'after'> {
  projection: Projection;
  count: 'exact' | 'none';
  /** The text of a cursor, undefined for the first page and for pages by offset. */
  cursor: string | undefined;
}

/**
 * Reads a page: the JSON text of `{"records": […], "total": number or null, "page", "limit"}` and, before its closing
 * brace, of `next_cursor` where there is more, and of the members in `more`. Records are the texts that are stored, or
 * their selected parts. Throws RESULT_TOO_LARGE over 32 MiB, having pulled hardly more than that, and INVALID_CURSOR.
 */
export async function readDocuments(db: Queryable, source: Source, options: ReadOptions, more = ''): Promise<Buffer> {
  const { projection, limit, offset, cursor } = options;
  const scope = { source, find: options.find, ...decidingTerms(source, options.sort) };
  const after = cursor === undefined ? undefined : decodeCursor(scope, cursor);
  // One row more than is wanted tells whether there is another page.
  const found = await readPage(db, source, { ...options, limit: limit + 1, after }, limit);
  const hasMore = found.length > limit;
  const page = hasMore ? found.slice(0, limit) : found;
  const total = await totalOf(db, source, options, page.length, hasMore);
  const next = hasMore ? encodeCursor(scope, positionOf(scope, page.at(-1)!)) : undefined;
  const records = page.map(({ body }) => (projection === 'all' ? body : project(body, projection)));
  // A cursor does not know how many pages are before it.
  const number = after ? null : Math.floor(offset / limit) + 1;
  const following = next === undefined ? '' : `,"next_cursor":"${next}"`;
  return Buffer.from(
    `{"records":[${records.join(',')}],"total":${total},"page":${number},"limit":${limit}${following}${more}}`,
  );
}

interface PageRow {
  body: string;
  id?: string;
  version?: string;
}

/** Whether a page is surely short work: what it is taken from has one value of an indexed field, and it is near the top. */
export function isShortRead(source: Source, { find, offset }: Pick<ReadOptions, 'find' | 'offset'>): boolean {
  return offset <= shortOffsetMax && fixedFields(source, find).size > 0;
}

/** The rows of a page, of which the first `counted` may not be too large together. */
async function readPage(db: Queryable, source: Source, page: PageRequest, counted: number): Promise<PageRow[]> {
  const { statement, mayBeCut } = pageStatement(source, page);
  const found = await rows<PageRow & { cut?: boolean }>(db, bounded(source, statement));
  const isExact = !mayBeCut || !found.some(({ cut }) => cut === true);
  const exact = isExact ? found : await rows<PageRow>(db, bounded(source, sortedPage(source, page)));
  let size = 0;
  for (const { body } of exact.slice(0, counted)) size += Buffer.byteLength(body) + 1;
  if (size > resultBytesMax) {
    throw new ServiceError(
      'RESOURCE_EXHAUSTED',
      RESULT_TOO_LARGE,
      'The result is larger than 32 MiB: ask for fewer records at a time',
    );
  }
  return exact;
}

/** Ends the rows after the one with which they exceed the limit. A window without an order keeps that of its input. */
function bounded(source: Source, page: Sql): Sql {
  if (source.sizeBytes !== undefined && source.sizeBytes < surelySmallBytes) return page;
  return sql`
    select q.* from (select p.*, sum(octet_length(p.body)) over (rows unbounded preceding) as bytes from (${page}) p) q
    where q.bytes - octet_length(q.body) <= ${trusted(String(resultBytesMax))}`;
}

/** How many records match, null where that is not asked for and not known anyway. */
async function totalOf(
  db: Queryable,
  source: Source,
  options: ReadOptions,
  found: number,
  hasMore: boolean,
): Promise<bigint | null> {
  const { find, offset, cursor, count } = options;
  // The page is the last one.
  if (cursor === undefined && !hasMore && (found > 0 || offset === 0)) return BigInt(offset + found);
  if (isAll(find)) return source.rowCount;
  return count === 'none' ? null : countDocuments(db, source, options);
}

async function countDocuments(db: Queryable, source: Source, { find }: Pick<ReadOptions, 'find'>): Promise<bigint> {
  const compiler = new Compiler(sourceFor(source, find));
  const where = compiler.where(find);
  const counted = await row<{ total: bigint }>(db, sql`select count(*) as total from ${compiler.records()} ${where}`);
  return counted?.total ?? 0n;
}

/** Reads of one request, at most: each but the first because something went away under the one before. */
const readsMax = 4;

/**
 * Runs a read again, from the look-up on, when an index or a table went away between its look-up and its statement:
 * `read` looks up its source each time, and afresh when it is repeated.
 */
export async function withFreshSource<T>(read: (isRepeated: boolean) => Promise<T>): Promise<T> {
  for (let reads = 1; ; reads += 1) {
    try {
      return await read(reads > 1);
    } catch (error) {
      // undefined_column, undefined_table, invalid_schema_name
      const isGone = ['42703', '42P01', '3F000'].includes(sqlState(error) ?? '');
      // The index may have been made since the handle was looked up.
      const isMissing = error instanceof ServiceError && error.reason === FIELD_NOT_INDEXED && reads === 1;
      if ((!isGone && !isMissing) || reads >= readsMax) throw error;
    }
  }
}
