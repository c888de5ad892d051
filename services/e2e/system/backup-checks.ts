import { createHash } from 'node:crypto';
import type { Client } from 'pg';
import { bulkDocuments, type Acknowledged } from './backup-traffic';
import { send, type ListAnswer } from '../support/granary';

interface Place {
  url: string;
  appId: string;
  key: string;
}

const pageSize = 1_000;

async function all<T>({ url, appId, key }: Place, collection: string): Promise<T[]> {
  const found: T[] = [];
  for (let offset = 0; ; offset += pageSize) {
    const body = { root: `${appId}::${collection}`, sort: ['id'], limit: pageSize, offset };
    const answer = await send<ListAnswer<T>>(url, 'POST', '/list', { key, body });
    expect(answer.status).toBe(200);
    found.push(...answer.body.records);
    if (answer.body.records.length < pageSize) return found;
  }
}

/** Everything that was acknowledged is there, and nothing half. Answers the ids of the single documents. */
export async function checkDocuments(place: Place, { writes, bulks }: Acknowledged): Promise<Set<string>> {
  const ids = new Set((await all<{ id: string }>(place, 'documents')).map(({ id }) => id));
  expect([...writes.keys()].filter((id) => !ids.has(id))).toEqual([]);
  const counts = new Map<string, number>();
  for (const { id } of await all<{ id: string }>(place, 'bulks')) {
    const name = id.split('/')[0]!;
    counts.set(name, (counts.get(name) ?? 0) + 1);
  }
  expect([...bulks].filter((name) => !counts.has(name))).toEqual([]);
  expect([...counts].filter(([, count]) => count !== bulkDocuments)).toEqual([]);
  return ids;
}

/** Each blob that is listed has the bytes that were uploaded, and all that should be are listed. Answers how many. */
export async function checkBlobs(
  place: Place,
  { deleted }: Acknowledged,
  expected: Map<string, string>,
): Promise<number> {
  const listed = await all<{ id: string; sha256: string; deleted?: boolean }>(place, 'files');
  const there = new Map(listed.filter((blob) => blob.deleted !== true).map(({ id, sha256 }) => [id, sha256]));
  expect([...expected].filter(([id, sha256]) => there.get(id) !== sha256)).toEqual([]);
  expect([...deleted].filter((id) => there.has(id))).toEqual([]);
  for (const [id, sha256] of there) {
    const answer = await fetch(`${place.url}/api/apps/${place.appId}/blobs/files/${id}`);
    const found = createHash('sha256').update(Buffer.from(await answer.arrayBuffer()));
    expect({ id, status: answer.status, sha256: found.digest('hex') }).toEqual({ id, status: 200, sha256 });
  }
  return there.size;
}

const cursorsChecked = 50;

/** The cursors behind all changes of an app. */
export async function readCursors({ url, appId, key }: Place): Promise<Array<{ height: number; cursor: string }>> {
  const cursors: Array<{ height: number; cursor: string }> = [];
  for (let [since, more] = ['0', true]; more;) {
    const path = `/api/apps/${appId}/changes?documents=false&limit=1000&since=${since}`;
    const { status, body } = await send<{ changes: typeof cursors; cursor: string; more: boolean }>(url, 'GET', path, {
      key,
    });
    expect(status).toBe(200);
    cursors.push(...body.changes.map(({ height, cursor }) => ({ height, cursor })));
    [since, more] = [body.cursor, body.more];
  }
  return cursors;
}

/** A feed goes on behind the cursors up to a height, and says of later ones that they are gone. */
export async function checkCursors(
  { url, appId, key }: Place,
  cursors: Awaited<ReturnType<typeof readCursors>>,
  lastHeight: number,
): Promise<void> {
  const kept = cursors.filter(({ height }) => height <= lastHeight).slice(-cursorsChecked);
  const lost = cursors.filter(({ height }) => height > lastHeight).slice(0, cursorsChecked);
  expect([kept.length, lost.length]).not.toContain(0);
  const path = `/api/apps/${appId}/changes`;
  for (const { height, cursor } of [...kept, ...lost]) {
    const { status, body } = await send(url, 'GET', `${path}?since=${cursor}`, { key });
    const expected = height <= lastHeight ? { status: 200 } : { status: 410, code: 'CURSOR_GONE' };
    expect({ height, status, code: body['code'] }).toEqual({ height, code: undefined, ...expected });
  }
}

const sha256 = (...parts: Array<Buffer | string>): Buffer =>
  parts.reduce((hash, part) => hash.update(part), createHash('sha256')).digest();

function withLength(part: Buffer): Buffer {
  const length = Buffer.alloc(4);
  length.writeUInt32BE(part.length);
  return Buffer.concat([length, part]);
}

/**
 * Recomputes the chain of an app from the texts that are stored, by docs/hash-chain.md alone. Of the bytes of uploads,
 * which have a link of their own, the stored content hash is believed. Answers the height.
 */
export async function checkChain(data: Client, appId: string): Promise<number> {
  const app = await data.query<{ number: string; height: string; hash: Buffer }>(
    'select a.number, h.height, h.hash from application a join head h on h.app_number = a.number where app_id = $1',
    [appId],
  );
  const { number, height, hash } = app.rows[0]!;
  const collections = await data.query<{ number: string }>('select number from collection where app_number = $1', [
    number,
  ]);
  const tables = collections.rows.flatMap((row) => ['c', 'h'].map((kind) => `a_${number}.${kind}_${row.number}`));
  const texts = await data.query<{ ordinal: string; place: number; id: string; body: string }>(
    `${tables.map((table) => `select ordinal, place, id, body::text from ${table}`).join(' union all ')} order by 1, 2`,
  );
  const byOrdinal = new Map<string, typeof texts.rows>();
  for (const row of texts.rows) byOrdinal.set(row.ordinal, [...(byOrdinal.get(row.ordinal) ?? []), row]);
  const commits = await data.query<{
    height: string;
    ordinal: string;
    hash: Buffer;
    content: Buffer;
    collection: string;
    ids: string[];
  }>(
    `select height, ordinal, hash, content_hash as content, collection, ids from a_${number}.commits order by commits.height`,
  );
  let previous: Buffer = Buffer.alloc(32);
  for (const [at, commit] of commits.rows.entries()) {
    const documents = byOrdinal.get(commit.ordinal);
    if (documents !== undefined) {
      expect(documents.map(({ id }) => id)).toEqual(commit.ids);
      const parts = documents.flatMap(({ id, body }) =>
        [Buffer.from(commit.collection), Buffer.from(id), sha256(body)].map(withLength),
      );
      expect(commit.content).toEqual(sha256(...parts));
    }
    const bytes = Buffer.alloc(8);
    bytes.writeBigUInt64BE(BigInt(at + 1));
    previous = sha256(previous, bytes, commit.content);
    expect({ height: commit.height, hash: commit.hash }).toEqual({ height: String(at + 1), hash: previous });
  }
  expect({ height, hash }).toEqual({ height: String(commits.rows.length), hash: previous });
  return commits.rows.length;
}

interface Holding {
  collection: string;
  documents: number;
  /** Of all versions of its documents, and of its blobs. */
  bytes: number;
}

/** What an app holds, by the rows that are there. */
export async function heldIn(data: Client, blobs: Client, appId: string): Promise<Holding[]> {
  const found = await data.query<Holding>(
    `select c.name as collection, c.row_count::int - c.deleted_count::int as documents, c.size_bytes::int as bytes
     from collection c join application a on a.number = c.app_number where a.app_id = $1 order by c.name`,
    [appId],
  );
  const stored = await blobs.query<{ collection: string; bytes: number }>(
    `select collection, sum(size_bytes)::int as bytes from blob where app_id = $1 and state = 'stored' group by collection`,
    [appId],
  );
  const blobBytes = (name: string) => stored.rows.find(({ collection }) => collection === name)?.bytes ?? 0;
  return found.rows.map((row) => ({ ...row, bytes: row.bytes + blobBytes(row.collection) }));
}

/** The same as finance knows it, by the events that it has applied. */
export async function chargedFor({ url, appId, key }: Place): Promise<Holding[]> {
  const { body } = await send<{
    collections: Array<{ collection: string; document_count: number; size_bytes: number }>;
  }>(url, 'GET', `/api/apps/${appId}/retention/cost`, { key });
  return body.collections
    .map((each) => ({ collection: each.collection, documents: each.document_count, bytes: each.size_bytes }))
    .sort((a, b) => (a.collection < b.collection ? -1 : 1));
}
