import { createHash } from 'node:crypto';
import { borrowGranary, newApp, send, transports, type Granary, type TestApp } from '../support/granary';

interface Commit {
  height: number;
  hash: string;
  content_hash: string;
  stores: string;
  collection: string;
  document_count: number;
  place: number;
  documents: Array<{ id: string; sha256: string; text?: string | null }>;
}

interface Page {
  head: { height: number; hash: string };
  commits: Commit[];
  next_cursor?: string;
}

const sha256 = (...parts: Array<Buffer | string>) =>
  parts.reduce((hash, part) => hash.update(part), createHash('sha256')).digest();

/** By docs/hash-chain.md, not by the code under test. */
function contentHash(collection: string, documents: Commit['documents']): string {
  const parts = documents.flatMap(({ id, sha256: hash }) => [
    Buffer.from(collection),
    Buffer.from(id),
    Buffer.from(hash, 'hex'),
  ]);
  const withLengths = parts.flatMap((part) => {
    const length = Buffer.alloc(4);
    length.writeUInt32BE(part.length);
    return [length, part];
  });
  return sha256(...withLengths).toString('hex');
}

function linkHash(previous: string, height: number, content: string): string {
  const bytes = Buffer.alloc(8);
  bytes.writeBigUInt64BE(BigInt(height));
  return sha256(Buffer.from(previous, 'hex'), bytes, Buffer.from(content, 'hex')).toString('hex');
}

describe.each(transports)('commits (%s)', (transport) => {
  let granary: Granary;
  let app: TestApp;
  let path: string;
  beforeAll(async () => {
    granary = await borrowGranary(transport);
  });
  afterAll(() => granary.stop());
  beforeEach(async () => {
    app = await newApp(granary);
    path = `/api/apps/${app.appId}/commits`;
  });

  const page = async (query = '') => (await app.call<Page>('GET', `${path}${query}`)).body;

  /** All pages: the documents of a commit that is on several are together. */
  async function allCommits(query: string): Promise<Commit[]> {
    const commits: Commit[] = [];
    for (let next: string | undefined = `?${query}`; next !== undefined;) {
      const { commits: found, next_cursor: cursor }: Page = await page(next);
      for (const commit of found) {
        const last = commits.at(-1);
        if (last?.height === commit.height) {
          expect(commit.place).toBe(last.documents.length);
          last.documents.push(...commit.documents);
        } else {
          expect(commit.place).toBe(0);
          commits.push(commit);
        }
      }
      next = cursor === undefined ? undefined : `?${query}&cursor=${cursor}`;
    }
    return commits;
  }

  test('the listing has all that the chain is recomputed from, on pages, with the texts where they are asked for', async () => {
    expect(await page()).toEqual({ app_id: app.appId, head: { height: 0, hash: '0'.repeat(64) }, commits: [] });
    const texts = ['{"id":"a", "n":1.50}', '{"id":"ü/\\"\\\\","t":"Grüße\\n"}'];
    await app.call('POST', '/store', `{"root":"${app.appId}::films","data":[${texts.join(',')}]}`);
    await app.store('films', [{ id: 'a', n: 2 }]);
    const blob = await app.call<{ blob_id: string }>('POST', `/api/apps/${app.appId}/blobs/files`, 'bytes', {
      'content-type': 'text/plain',
    });
    await app.store(
      'big',
      Array.from({ length: 1_200 }, (_, n) => ({ id: `d${n}`, n })),
    );
    await app.store(
      'wide',
      Array.from({ length: 4 }, (_, n) => ({ id: `w${n}`, text: 'x'.repeat(1_040_000) })),
    );
    await app.store('gone', [{ id: 'g' }]);
    await app.call('DELETE', `/api/apps/${app.appId}/collections/gone`, { force: true });
    await app.store('gone', [{ id: 'g', n: 2 }]);

    for (const query of ['texts=true', 'texts=true&limit=1', 'limit=3', 'limit=1000']) {
      const commits = await allCommits(query);
      expect(commits.map(({ height }) => height)).toEqual([1, 2, 3, 4, 5, 6, 7, 8]);
      let previous = '0'.repeat(64);
      for (const { height, hash, content_hash: content, collection, document_count: count, documents } of commits) {
        expect(documents).toHaveLength(count);
        expect(contentHash(collection, documents)).toBe(content);
        expect(linkHash(previous, height, content)).toBe(hash);
        previous = hash;
      }
      expect((await page()).head).toEqual({ height: 8, hash: previous });
      for (const { documents, stores, height } of commits) {
        for (const { text, sha256: hash } of documents) {
          if (!query.startsWith('texts')) expect(text).toBeUndefined();
          else if (stores === 'blob' || height === 7) expect(text).toBeNull();
          else expect(sha256(text!).toString('hex')).toBe(hash);
        }
      }
    }
    const [first, second, upload] = (await page('?limit=3&texts=true')).commits;
    expect(first!.documents.map(({ text }) => text)).toEqual(texts);
    expect(second!.documents[0]).toMatchObject({ id: 'a', text: '{"id":"a","n":2}' });
    const { documents: blobs, ...ofUpload } = upload!;
    expect(ofUpload).toMatchObject({ operation: 'upload', stores: 'blob', collection: 'files' });
    expect(blobs).toEqual([{ id: blob.body.blob_id, sha256: sha256('bytes').toString('hex'), text: null }]);
    expect((await page('?from=7&limit=1')).commits.map(({ height }) => height)).toEqual([7]);
    expect(await page('?from=9')).toMatchObject({ commits: [], head: { height: 8 } });
    for (const query of ['limit=2', 'limit=2&texts=true']) {
      const linked = await app.call('GET', `${path}?${query}`);
      expect(linked.headers.get('link')).toBe(`<${path}?${query}&cursor=3.0>; rel="next"`);
    }
  });

  test('a proof has the hashes of the whole commit, the links beside it and the document that it is of', async () => {
    await app.store('films', [{ id: 'a', n: 1 }]);
    await app.store('films', [
      { id: 'b', n: 1 },
      { id: 'a', n: 2 },
      { id: 'a', n: 3 },
    ]);
    await app.store('films', [{ id: 'a', n: 4 }]);
    const { commits } = await page();
    const proof = await app.call<Record<string, unknown>>('GET', `${path}/2/proof?id=a`);
    const { place: _, ...commit } = commits[1]!;
    expect(proof.body).toEqual({
      app_id: app.appId,
      ...commit,
      previous_hash: commits[0]!.hash,
      next: { height: 3, hash: commits[2]!.hash, content_hash: commits[2]!.content_hash },
      document: { ...commit.documents[2], place: 2, text: '{"id":"a","n":3}' },
    });
    const whole = await app.call('GET', `${path}/1/proof`);
    expect(whole.body).toMatchObject({ previous_hash: '0'.repeat(64), next: { height: 2 } });
    expect(whole.body).not.toHaveProperty('document');
    expect((await app.call('GET', `${path}/3/proof`)).body).toMatchObject({ next: null });

    await app.call('DELETE', `/api/apps/${app.appId}/collections/films/documents/a?erase=true`);
    const erased = await app.call<{ document: object; documents: object[] }>('GET', `${path}/2/proof?id=a`);
    expect(erased.body.document).toEqual({ ...commit.documents[2], place: 2, text: null });
    expect(erased.body.documents).toEqual(commit.documents);
  });

  test('what is not there is not found, and only a key with Read sees commits', async () => {
    await app.store('films', [{ id: 'a' }]);
    for (const height of ['0', '2', '01', 'x', '99999999999999999999']) {
      expect(await app.call('GET', `${path}/${height}/proof`)).toMatchObject({
        status: 404,
        body: { code: 'COMMIT_NOT_FOUND' },
      });
    }
    expect((await app.call('GET', `${path}/1/proof?id=b`)).body).toMatchObject({ code: 'DOCUMENT_NOT_FOUND' });
    for (const query of ['limit=0', 'limit=1001', 'from=0', 'from=x', 'other=1', 'texts=1', 'cursor=1', 'cursor=a.b']) {
      expect((await app.call('GET', `${path}?${query}`)).status).toBe(400);
    }
    const other = await newApp(granary);
    const made = await app.call<{ app_key: string }>('POST', `/api/apps/${app.appId}/regenerate-key`, {
      name: 'payer',
      permissions: ['Pay'],
    });
    for (const route of [path, `${path}/1/proof`]) {
      expect((await send(granary.url, 'GET', route)).status).toBe(401);
      expect((await other.call('GET', route)).status).toBe(403);
      expect((await send(granary.url, 'GET', route, { key: made.body.app_key })).status).toBe(403);
    }
  });
});
