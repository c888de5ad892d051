import { FIELD_NOT_INDEXED } from '../language/query-error';
import { ServiceError } from '@granary/shared/errors';
import { UndecryptableError } from '../../encryption/document-cipher';
import { project, type Projection } from '../../json/project';
import { row, rows, type Queryable } from '@granary/shared/postgres/pool';
import { isGone, sqlState } from '@granary/shared/postgres/errors';
import { sql, trusted, type Sql } from '@granary/shared/postgres/sql';
import { decodeCursor, encodeCursor, positionOf, type PageRow } from '../plan/cursor';
import { positionOfRecord } from './cursor-position';
import type { IndexReads, ReadDatabases } from './read-scheduler';
import { isAll } from '../language/condition';
import { IndexPageReader, JoinedPageReader, type Page } from './index-page';
import { indexRead } from '../sql/index-scan-sql';
import { effectiveSort } from '../plan/order';
import { alternativePlan, isByIndexAlone, planPage, type PagePlan, type PageRequest } from '../plan/page-plan';
import { stepAfterHead, type ScanStep } from '../plan/scan';
import { countStatement, pageStatement } from '../sql/page-sql';
import { joinedPage } from '../sql/join-sql';
import { lookUpCount, planJoins, type JoinTarget } from '../plan/join-plan';
import type { JoinedSelect } from '../language/joined-select';
import { assertSortable, recordText, storedFilter } from './encrypted-read';
import { JoinedRecords, recordShape } from './joined-records';
import { PageBuffer } from './page-buffer';
import { TextsReader } from './texts-reader';
import { hintUnknownFields } from './unknown-fields';
import { limitCount, limitPage } from './public-limits';
import { resultBytesMax, resultTooLarge } from './result-limit';
import type { Relation } from '../plan/relation';

/** Bytes of a page buffer for the text around the records: hardly more is needed, but for a cursor. */
const answerBytes = 512;
/** Documents of a page with joins by one index, at most: twice as many as on a page without joins. */
const indexReadDocumentsMax = 2_002;
/** Documents of a page that is read at once, among the others; longer ones take turns. */
const shortPageMax = 200;
/** A source that is smaller by some writes of the next moment cannot exceed it. */
const surelySmallBytes = BigInt(resultBytesMax / 2);

export interface ReadOptions extends Omit<PageRequest, 'after'> {
  projection: Projection;
  count: 'exact' | 'none';
  /** The text of a cursor, undefined for the first page and for pages by offset. */
  cursor: string | undefined;
  /**
   * The joins of the records and their select, which take the place of `projection`; undefined where there is no join.
   */
  joined?: JoinedRead | undefined;
}

/** The joins of a page with their collections, and what is selected of its records. */
export interface JoinedRead {
  joins: readonly JoinTarget[];
  select: JoinedSelect;
}

/** A page as JSON text, and the state of its relation, no newer than what the page shows; where it says which. */
export interface PageText {
  json: Buffer;
  state: string | undefined;
}

/** The JSON text of a page, see readPage(). */
export const readDocuments = async (db: ReadDatabases, source: Relation, options: ReadOptions): Promise<Buffer> =>
  (await readPage(db, source, options)).json;

/**
 * Reads a page: the JSON text of `{"records": […], "total": number or null, "page", "limit"}` and, before its closing
 * brace, of `next_cursor` where there is more, of `hints` where nothing matches and a field of the filter is known
 * nowhere, and of the members in `more`. Records are the texts that are stored, or their selected parts. Throws
 * RESULT_TOO_LARGE over 32 MiB, having pulled hardly more than that, INVALID_CURSOR, and what `storedFilter` and
 * `assertSortable` throw.
 */
export async function readPage(
  db: ReadDatabases,
  source: Relation,
  options: ReadOptions,
  more = '',
): Promise<PageText> {
  const { find, sort, projection, limit, offset, cursor } = options;
  assertSortable(source, sort);
  const { terms, descending } = effectiveSort(source, sort);
  const scope = { source, find, terms, descending };
  const place = cursor === undefined ? undefined : decodeCursor(scope, cursor);
  const resolving = db.resolve(find);
  // Most filters refer to nothing, and are not waited for.
  const resolved = resolving instanceof Promise ? await resolving : resolving;
  const stored = storedFilter(source, resolved, db.mayReadPrivate);
  const after = place && 'valuesDigest' in place ? await positionOfRecord(db.pool, scope, stored, place) : place;
  // One row more than is wanted tells whether there is another page.
  const page = planPage(source, { find: stored, sort, limit: limit + 1, offset, after });
  const plan = options.joined ? joinedPlan(page, options.joined.joins) : page;
  try {
    const select = options.joined?.select;
    const { records, hasMore, last, state } =
      (await readByIndex(db, plan, projection, select)) ??
      (select ? await readJoined(db, generalPlan(plan), select) : await readByPool(db, generalPlan(plan), projection));
    const total = await totalOf(db, plan, options, records.count, hasMore);
    const following = hasMore ? `,"next_cursor":"${encodeCursor(scope, positionOf(scope, last!))}"` : '';
    // A cursor does not know how many pages are before it.
    const number = after ? null : Math.floor(offset / limit) + 1;
    // An answer without records that a misspelling may have caused says so.
    const isEmpty = records.count === 0 && after === undefined && offset === 0 && !isAll(find);
    const hints = isEmpty ? await hintUnknownFields(db.pool, source, find, maySeeAll(db, source)) : [];
    const hinted = hints.length === 0 ? '' : `,"hints":${JSON.stringify(hints)}`;
    return {
      json: records.end(`"total":${total},"page":${number},"limit":${limit}${following}${hinted}${more}}`),
      state,
    };
  } finally {
    db.record?.(plan);
  }
}

/** Whether a reader sees all of a record: everybody of a row of a view. */
const maySeeAll = ({ mayReadPrivate }: Pick<ReadDatabases, 'mayReadPrivate'>, { kind }: Relation): boolean =>
  mayReadPrivate || kind === 'view';

/**
 * The page where one index gives it alone; undefined where none does, and where the rows turn out not to be the page.
 */
async function readByIndex(
  db: ReadDatabases,
  plan: PagePlan,
  projection: Projection,
  select: JoinedSelect | undefined,
): Promise<Page | undefined> {
  const read = indexRead(plan);
  if (!read) return undefined;
  const { relation, access, limit, joins } = plan;
  const documents = (limit - 1) * documentsOfRow(joins);
  const reads = documents <= shortPageMax ? db.shortPages : db.longPages;
  const { text, values, state } = read;
  try {
    if (select) {
      const writer = new JoinedRecords(recordShape(select, joins!, relation, db.mayReadPrivate));
      return await reads.read<Page | undefined>(text, values, new JoinedPageReader(access.shape, limit, writer));
    }
    const show = recordText(relation, db.mayReadPrivate);
    const reader = new IndexPageReader(access.shape, limit, { projection, show }, relation.state !== undefined);
    if (!state || !reads.readSharing) return await reads.read<Page | undefined>(text, values, reader);
    return await reads.readSharing<Page | undefined>(text, state, values, reader);
  } catch (error) {
    // query_canceled: among what is short this was not, perhaps for all the deleted rows that it had to pass over.
    if (sqlState(error) === '57014') return undefined;
    throw error;
  }
}

/** The plan for a statement that others are part of or a pool sends. */
const generalPlan = (plan: PagePlan): PagePlan =>
  isByIndexAlone(plan.access) ? { ...alternativePlan(plan)!, joins: plan.joins } : plan;

/** Documents that are read for a row of a page by one index: its own, and those that its joins look up. */
const documentsOfRow = (joins: readonly JoinTarget[] = []): number => 1 + (lookUpCount(joins) ?? Infinity);

/** The plan of a page with joins. One index gives it where they look up few documents by their ids. */
export function joinedPlan(plan: PagePlan, targets: readonly JoinTarget[]): PagePlan {
  const joins = planJoins(targets);
  const isLookedUp = plan.limit * documentsOfRow(joins) <= indexReadDocumentsMax;
  return { ...(isLookedUp ? plan : generalPlan(plan)), joins };
}

/** Reads the page by a statement of any kind. Throws RESULT_TOO_LARGE where its rows are too large together. */
async function readByPool(db: ReadDatabases, plan: PagePlan, projection: Projection): Promise<Page> {
  const state = plan.relation.state && (await readState(db.shortPages, plan.relation.state));
  const textRows = await limitPage(db.limits, plan, () => pageRows<TextRow>(db.pool, plan));
  const hasMore = textRows.length === plan.limit;
  if (hasMore) textRows.pop();
  let size = 0;
  for (const { body } of textRows) size += Buffer.byteLength(body) + 1;
  assertAnswerSize(size);
  const records = new PageBuffer(size + answerBytes);
  const show = recordText(plan.relation, db.mayReadPrivate);
  for (const { body } of textRows) {
    const text = show ? show(Buffer.from(body)).toString() : body;
    records.add(projection === 'all' ? text : project(text, projection));
  }
  return { records, hasMore, last: textRows.at(-1), state };
}

/** The state of a relation, before its page is read. */
const readState = async (reads: IndexReads, state: Sql): Promise<string | undefined> =>
  (await reads.read(state.compile().text, [], new TextsReader(1)))[0];

/** Reads the page with its joins, in one statement. */
async function readJoined(db: ReadDatabases, plan: PagePlan, select: JoinedSelect): Promise<Page> {
  const textRows = await limitPage(db.limits, plan, () => pageRows<TextRow & { joined: string }>(db.pool, plan));
  const hasMore = textRows.length === plan.limit;
  if (hasMore) textRows.pop();
  let size = 0;
  for (const row of textRows) size += Buffer.byteLength(row.body) + Buffer.byteLength(row.joined) + 1;
  assertAnswerSize(size);
  const records = new PageBuffer(size + answerBytes);
  const writer = new JoinedRecords(recordShape(select, plan.joins ?? [], plan.relation, db.mayReadPrivate));
  // No document is too large for this statement.
  for (const row of textRows) records.add(writer.write(Buffer.from(row.body), Buffer.from(row.joined))!);
  return { records, hasMore, last: textRows.at(-1) };
}

function assertAnswerSize(sizeBytes: number): void {
  if (sizeBytes > resultBytesMax) {
    throw resultTooLarge('The result is larger than 32 MiB: ask for fewer records at a time');
  }
}

type TextRow = PageRow & { body: string };

async function pageRows<R extends TextRow>(db: Queryable, plan: PagePlan): Promise<R[]> {
  if (plan.scan) return scanRows(db, plan, plan.scan);
  const textRows = await rows<R & { truncated?: boolean }>(db, pageTextStatement(plan));
  if (!textRows.some(({ truncated }) => truncated === true)) return textRows;
  return rows<R>(db, pageTextStatement({ ...alternativePlan(plan)!, joins: plan.joins }));
}

async function scanRows<R extends TextRow>(db: Queryable, plan: PagePlan, step: ScanStep): Promise<R[]> {
  const textRows = await rows<R>(db, pageTextStatement(plan));
  if (step.kind !== 'head' || textRows.length === plan.limit) return textRows;
  return rows<R>(db, pageTextStatement({ ...plan, scan: stepAfterHead(plan, step.rows, textRows.length) }));
}

/** The statement by which a plan is read over the pool. */
export function pageTextStatement(plan: PagePlan): Sql {
  const { relation, joins } = plan;
  const page = pageStatement(plan);
  return joins ? joinedPage(page, relation, joins, resultBytesMax) : bounded(relation, page);
}

/** Ends the rows after the one with which they exceed the limit. A window without an order keeps that of its input. */
function bounded(source: Relation, page: Sql): Sql {
  if (source.sizeBytes !== undefined && source.sizeBytes < surelySmallBytes) return page;
  return sql`
    select q.* from (select p.*, sum(octet_length(p.body)) over (rows unbounded preceding) as bytes from (${page}) p) q
    where q.bytes - octet_length(q.body) <= ${trusted(String(resultBytesMax))}`;
}

/** Returns how many records match; null where the request does not ask for it and it is not known anyway. */
async function totalOf(
  { pool, limits }: ReadDatabases,
  plan: PagePlan,
  { offset, cursor, count }: ReadOptions,
  recordCount: number,
  hasMore: boolean,
): Promise<bigint | null> {
  // The page is the last one.
  if (cursor === undefined && !hasMore && (recordCount > 0 || offset === 0)) return BigInt(offset + recordCount);
  if (isAll(plan.filter)) return plan.relation.rowCount;
  return count === 'none' ? null : limitCount(limits, plan, () => countDocuments(pool, plan));
}

const countDocuments = async (db: Queryable, plan: PagePlan): Promise<bigint> =>
  (await row<{ total: bigint }>(db, countStatement(plan)))?.total ?? 0n;

/** Reads of one request, at most: each but the first because something went away under the one before. */
const readsMax = 4;

/**
 * Runs a read again, from the look-up on, when an index or a table went away between its look-up and its statement:
 * `read` looks up its source each time, and afresh when it is repeated. It and its callers `return await`: to resolve
 * an async function with a promise takes two more turns of the microtask queue than to await it.
 */
export async function withFreshSource<T>(read: (isRepeated: boolean) => Promise<T>): Promise<T> {
  for (let reads = 1; ; reads += 1) {
    try {
      return await read(reads > 1);
    } catch (error) {
      // The index may have been made since the collection was looked up.
      const isMissing = error instanceof ServiceError && error.reason === FIELD_NOT_INDEXED && reads === 1;
      const hasNewKey = error instanceof UndecryptableError && reads === 1;
      if ((!isGone(error) && !isMissing && !hasNewKey) || reads >= readsMax) throw error;
    }
  }
}
