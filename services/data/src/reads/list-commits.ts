import { invalid, notFound } from '@granary/shared/errors';
import type { ListCommitsRequest } from '@granary/shared/gen/granary/data/v1/ListCommitsRequest';
import type { ListCommitsResponse } from '@granary/shared/gen/granary/data/v1/ListCommitsResponse';
import { INVALID_CURSOR } from '@granary/shared/postgres/listing';
import { row, type Queryable } from '@granary/shared/postgres/pool';
import { sql } from '@granary/shared/postgres/sql';
import type { Call } from '@granary/shared/rpc/types';
import { APP_NOT_FOUND, findApp } from '../catalog/app';
import { readCommits, type CommitRecord } from '../chain/commit-pages';
import { AppDatabases } from '../query/execute/read-scheduler';
import { addTexts, entriesOf, type CommitEntry } from './commit-entries';
import type { ReadContext } from './read-context';

const commitsMax = 1_000;
/** Entries of a page, and of one with texts, which are looked up. A commit that has more continues on the next page. */
const entriesMax = 10_000;
const entriesWithTextMax = 1_000;

/**
 * A page of the commits of an app from a height on, with the id and the hash of each text, and the texts where they are
 * asked for. Throws APP_NOT_FOUND, INVALID_CURSOR.
 */
export async function listCommits(
  context: ReadContext,
  request: ListCommitsRequest,
  call: Pick<Call, 'signal'>,
): Promise<ListCommitsResponse> {
  const { appId, texts } = request;
  const app = await findApp(context.fast, appId);
  const { pool } = new AppDatabases(context, { appId, mayReadPrivate: true }, call.signal);
  const start = request.cursor === '' ? { height: BigInt(request.from), place: 0 } : parseCursor(request.cursor);
  const head = await readHead(pool, app.number);
  const limit = Math.min(Math.max(request.limit, 1), commitsMax);
  const max = texts ? entriesWithTextMax : entriesMax;
  // The entries of the first commit that earlier pages had do not count.
  const commits = await readCommits(pool, app.number, start.height, limit, max + start.place);
  const all = commits.flatMap((commit) => entriesOf(commit));
  let entries = all.slice(start.place, start.place + max);
  if (texts) entries = await addTexts(pool, app, entries);
  const next = nextCursor(commits, entries, start.place, head.height);
  const body = { app_id: appId, head: { height: Number(head.height), hash: head.hash.toString('hex') } };
  const json = `${JSON.stringify(body).slice(0, -1)},"commits":[${commitsJson(entries, texts).join(',')}]${
    next === '' ? '' : `,"next_cursor":"${next}"`
  }}`;
  return { json: Buffer.from(json), nextCursor: next };
}

async function readHead(db: Queryable, appNumber: bigint): Promise<{ height: bigint; hash: Buffer }> {
  const head = await row<{ height: bigint; hash: Buffer }>(
    db,
    sql`select height, hash from head where app_number = ${appNumber}`,
  );
  if (!head) throw notFound(APP_NOT_FOUND, 'There is no such app');
  return head;
}

/** `<height>.<place>`: the next entry. */
function parseCursor(cursor: string): { height: bigint; place: number } {
  const [, height, place] = /^(\d{1,15})\.(\d{1,9})$/.exec(cursor) ?? [];
  if (height !== undefined && place !== undefined) return { height: BigInt(height), place: Number(place) };
  throw invalid('The cursor is not valid', { cursor: ['is not one of this listing'] }, INVALID_CURSOR);
}

function nextCursor(
  commits: readonly CommitRecord[],
  entries: readonly CommitEntry[],
  firstPlace: number,
  headHeight: bigint,
): string {
  const last = entries.at(-1);
  const commit = last?.commit ?? commits.at(-1);
  if (!commit) return '';
  const place = (last?.place ?? firstPlace) + 1;
  if (place < commit.ids.length) return `${commit.height}.${place}`;
  return commit.height < headHeight ? `${commit.height + 1n}.0` : '';
}

/** Each commit with those of its entries that the page has. */
function commitsJson(entries: readonly CommitEntry[], withTexts: boolean): string[] {
  const commits: string[] = [];
  for (let start = 0; start < entries.length;) {
    const { commit, place } = entries[start]!;
    let end = start;
    while (end < entries.length && entries[end]!.commit === commit) end += 1;
    const documents = entries
      .slice(start, end)
      .map(({ id, sha256, text }) => ({ id, sha256, ...(withTexts && { text }) }));
    commits.push(JSON.stringify({ ...commitMembers(commit), place, documents }));
    start = end;
  }
  return commits;
}

/** The members of a commit as a reader gets it, without its entries. */
export const commitMembers = (commit: CommitRecord) => ({
  height: Number(commit.height),
  hash: commit.hash.toString('hex'),
  content_hash: commit.content.toString('hex'),
  operation: commit.operation,
  stores: commit.isBlob ? 'blob' : 'documents',
  collection: commit.collection,
  at: commit.at.toISOString(),
  document_count: commit.ids.length,
});
