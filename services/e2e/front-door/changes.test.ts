import { borrowGranary, newApp, send, transports, type Granary, type TestApp } from '../support/granary';
import { type FeedClient, FeedClients, type FeedEvent, type FeedOptions } from '../support/feed-client';

interface Page {
  changes: Array<Record<string, unknown>>;
  cursor: string;
  head: number;
  more: boolean;
}

const nobody = { key: undefined };

const shown = ({ event, data: { id, version, reason, document } }: FeedEvent) =>
  event === 'put' ? [id, version, document] : [id, reason];

describe.each(transports)('change feeds (%s)', (transport) => {
  let granary: Granary;
  let app: TestApp;
  let path: string;
  const feeds = new FeedClients();
  beforeAll(async () => {
    granary = await borrowGranary(transport);
  });
  afterAll(() => granary.stop());
  beforeEach(async () => {
    app = await newApp(granary);
    path = `/api/apps/${app.appId}/changes`;
  });
  afterEach(() => feeds.close());

  const open = (query = '', options: Partial<FeedOptions> = {}): Promise<FeedClient> =>
    feeds.open({ url: granary.url, path: path + query, key: app.key, ...options });
  const page = (query = '', { key }: { key?: string | undefined } = app) =>
    send<Page & { code: string; details: Record<string, string[]>; error: string }>(granary.url, 'GET', path + query, {
      key,
    });
  const document = (collection: string, id: string) =>
    `/api/apps/${app.appId}/collections/${collection}/documents/${id}`;
  const find = (filter: object) => `&find=${encodeURIComponent(JSON.stringify(filter))}`;

  test('a stream is ready at once, and then has each change as it is committed, with the last of a commit marked', async () => {
    await app.store('books', [{ id: 'a', n: 1 }]);
    const feed = await open();
    expect(feed.headers).toMatchObject({
      'content-type': 'text/event-stream; charset=utf-8',
      'cache-control': 'no-store',
      'x-accel-buffering': 'no',
    });
    expect(await feed.told('ready')).toEqual({ event: 'ready', data: { app_id: app.appId, head: 1 } });
    await app.store('books', [
      { id: 'b', n: 2 },
      { id: 'a', n: 3 },
    ]);
    await app.call('DELETE', document('books', 'b'));
    const changes = await feed.changed(3);
    expect(changes.map(shown)).toEqual([
      ['b', 1, { id: 'b', n: 2 }],
      ['a', 2, { id: 'a', n: 3 }],
      ['b', 'deleted'],
    ]);
    expect(changes.map(({ data: { height, place, last } }) => [height, place, last])).toEqual([
      [2, 0, undefined],
      [2, 1, true],
      [3, 0, true],
    ]);
    expect(changes.every(({ id }) => /^\d+\.\d+-[0-9a-f]{8}$/.test(id!))).toBe(true);
  });

  test('the past follows from any height, page by page or as a stream, and every cursor goes on behind its change', async () => {
    for (let height = 1; height <= 5; height += 1) {
      await app.store('books', [
        { id: `x${height}`, height },
        { id: 'same', height },
      ]);
    }
    const whole = (await page('?since=0')).body;
    expect(whole).toMatchObject({ head: 5, more: false });
    expect(whole.changes.map(({ height, place }) => [height, place])).toEqual(
      [1, 2, 3, 4, 5].flatMap((height) => [
        [height, 0],
        [height, 1],
      ]),
    );
    const pages: Page[] = [];
    for (let since = '0', more = true; more;) {
      const { body } = await page(`?since=${since}&limit=3`);
      pages.push(body);
      ({ cursor: since, more } = body);
    }
    expect(pages.map(({ changes }) => changes.length)).toEqual([3, 3, 3, 1]);
    const data = (change: Record<string, unknown>) => ({ ...change, last: undefined });
    expect(pages.flatMap(({ changes }) => changes).map(data)).toEqual(whole.changes.map(data));
    for (const [index, { cursor }] of whole.changes.entries()) {
      const { changes } = (await page(`?since=${cursor as string}`)).body;
      expect(changes).toEqual(whole.changes.slice(index + 1));
    }
    const stream = await open('?since=3', { accept: 'application/x-ndjson' });
    expect(stream.headers['content-type']).toBe('application/x-ndjson; charset=utf-8');
    expect((await stream.changed(4)).map(({ data: { height } }) => height)).toEqual([4, 4, 5, 5]);
    const resumed = await open('?since=0', { headers: { 'last-event-id': stream.cursor! } });
    await app.store('books', [{ id: 'new' }]);
    expect((await resumed.changed(1)).map(shown)).toEqual([['new', 1, { id: 'new' }]]);
  });

  test('a filter delivers what matches it, and the removal of what matched before, but of nothing else', async () => {
    await app.store('books', [
      { id: 'in', owner: 'ann', n: 1 },
      { id: 'out', owner: 'bob', n: 1 },
    ]);
    const filters = [{ owner: 'ann' }, { owner: { ne: 'bob' } }, { owner: 'ann', n: { gte: 1 } }];
    const feeds = await Promise.all(filters.map((filter) => open(`?collection=books${find(filter)}`)));
    await app.store('books', [{ id: 'out', owner: 'bob', n: 2 }]);
    await app.store('books', [{ id: 'in', owner: 'ann', n: 3 }]);
    await app.store('books', [{ id: 'in', owner: 'bob', n: 3 }]);
    await app.store('books', [{ id: 'out', owner: 'ann', n: 4 }]);
    await app.call('DELETE', document('books', 'out'));
    await app.call('DELETE', document('books', 'in'));
    const expected = [
      ['in', 2, { id: 'in', owner: 'ann', n: 3 }],
      ['in', 'filtered'],
      ['out', 3, { id: 'out', owner: 'ann', n: 4 }],
      ['out', 'deleted'],
    ];
    for (const [index, feed] of feeds.entries()) {
      expect((await feed.changed(4)).map(shown)).toEqual(expected);
      const { changes } = (await page(`?since=1&collection=books${find(filters[index]!)}`)).body;
      expect(
        changes.map(({ event, id, version, document: text, reason }) =>
          event === 'put' ? [id, version, text] : [id, reason],
        ),
      ).toEqual(expected);
    }
  });

  test('several subscriptions are one stream, in which a change comes once with those that it is for', async () => {
    const feed = await open('', {
      body: {
        since: '0',
        select: ['id', 'n'],
        subscriptions: [
          { as: 'all', collection: 'books' },
          { as: 'many', collection: 'books', find: { n: { gt: 5 } } },
          { as: 'anns', collection: 'books', find: { or: [{ owner: 'ann' }, { shared: true }] } },
        ],
      },
    }).catch((error: unknown) => error as FeedClient);
    // The collection is not there yet.
    expect(feed.status).toBe(404);
    await app.store('books', [{ id: 'a', n: 9, owner: 'ann', text: 'x' }]);
    const second = await open('', {
      body: {
        since: '0',
        select: ['id', 'n'],
        subscriptions: [
          { as: 'all', collection: 'books' },
          { as: 'many', collection: 'books', find: { n: { gt: 5 } } },
          { as: 'anns', collection: 'books', find: { or: [{ owner: 'ann' }, { shared: true }] } },
        ],
      },
    });
    await app.store('books', [{ id: 'b', n: 1, shared: true }]);
    await app.store('books', [{ id: 'b', n: 7 }]);
    const changes = await second.changed(4);
    expect(changes.map(({ event, data }) => [event, data.id, data.as, data.document ?? data.reason])).toEqual([
      ['put', 'a', ['all', 'many', 'anns'], { id: 'a', n: 9 }],
      ['put', 'b', ['all', 'anns'], { id: 'b', n: 1 }],
      ['remove', 'b', ['anns'], 'filtered'],
      ['put', 'b', ['all', 'many'], { id: 'b', n: 7 }],
    ]);
    // Only the last event of a change moves the cursor.
    expect(changes.map(({ id }) => id !== undefined)).toEqual([true, true, false, true]);
  });

  test('mode=latest has each document of a page once, as it is at its end', async () => {
    for (let n = 1; n <= 5; n += 1)
      await app.store('books', [
        { id: 'a', n },
        { id: `b${n}`, n },
      ]);
    const { changes } = (await page('?since=0&collection=books&mode=latest')).body;
    expect(changes.map(({ id }) => id)).toEqual(['b1', 'b2', 'b3', 'b4', 'a', 'b5']);
    const filtered = (await page(`?since=0&collection=books&mode=latest${find({ n: { lt: 3 } })}`)).body;
    expect(filtered.changes.map(({ id }) => id)).toEqual(['b1', 'b2']);
  });

  test('documents=false has ids alone, and select a part of each document', async () => {
    await app.store('books', [{ id: 'a', n: 1, deep: { x: 1, y: 2 } }]);
    const ids = (await page('?since=0&documents=false')).body.changes[0]!;
    expect(ids).toMatchObject({ id: 'a', version: 1 });
    expect(ids).not.toHaveProperty('document');
    const selections = ['deep.x', JSON.stringify({ n: false, 'deep.y': false }), JSON.stringify(['id'])];
    const documents = [];
    for (const select of selections) {
      documents.push((await page(`?since=0&select=${encodeURIComponent(select)}`)).body.changes[0]!['document']);
    }
    expect(documents).toEqual([{ deep: { x: 1 } }, { id: 'a', deep: { x: 1 } }, { id: 'a' }]);
  });

  test('what is erased and dropped is told to followers, from the past as well', async () => {
    await app.store('books', [
      { id: 'a', n: 1 },
      { id: 'b', n: 2 },
    ]);
    const feed = await open('?since=0');
    await feed.changed(2);
    await app.call('DELETE', `${document('books', 'a')}?erase=true`);
    expect((await feed.changed(3)).map(shown)[2]).toEqual(['a', 'erased']);
    await app.store('books', [{ id: 'c', n: 3 }]);
    await feed.changed(4);
    await app.call('DELETE', `/api/apps/${app.appId}/collections/books`, { force: true });
    const changes = await feed.changed(5);
    expect(changes.slice(3).map(shown)).toEqual([
      ['c', 1, { id: 'c', n: 3 }],
      [undefined, 'dropped'],
    ]);
    expect(changes.map(({ data: { height, place } }) => [height, place])).toEqual([
      [1, 0],
      [1, 1],
      [1, 2],
      [2, 0],
      [2, 1],
    ]);
    const past = (await page('?since=0')).body.changes;
    expect(past.map(({ id, reason, document: text }) => [id, reason ?? text])).toEqual([
      ['a', null],
      ['b', null],
      ['a', 'erased'],
      ['c', null],
      [undefined, 'dropped'],
    ]);
    for (const change of changes) {
      const rest = (await page(`?since=${change.id!}`)).body.changes;
      expect(rest).toHaveLength(changes.length - 1 - changes.indexOf(change));
    }
  });

  test('a page waits for a change, and one without any comes with a cursor', async () => {
    await app.store('books', [{ id: 'a' }]);
    const waiting = page('?wait=30');
    const first = await page();
    expect(first.body).toMatchObject({ changes: [], head: 1, more: false });
    await app.store('books', [{ id: 'b' }]);
    // The wait may have begun after the write.
    await app.store('books', [{ id: 'c' }]);
    const { changes } = (await waiting).body;
    expect(changes.length).toBeGreaterThanOrEqual(1);
    const { body } = await page(`?since=${first.body.cursor}&wait=30`);
    expect(body.changes.map(({ id }) => id)).toEqual(['b', 'c']);
  });

  test('what is wrong is refused before a stream begins, and names the parameter', async () => {
    await app.store('books', [{ id: 'a', n: 1 }]);
    const cases: Array<[query: string, status: number, code: string, detail: string]> = [
      ['?since=x', 400, 'VALIDATION_FAILED', 'since'],
      ['?since=7', 400, 'CURSOR_AHEAD', 'since'],
      [`?since=0${find({ n: 1 })}`, 400, 'INVALID_QUERY', 'find'],
      [`?collection=books${find({ n: { gte: [1] } })}`, 400, 'INVALID_QUERY', 'find.n.gte'],
      [`?collection=books${find({ n: { $search: 'x' } })}`, 400, 'INVALID_QUERY', 'find'],
      ['?collection=books&find={', 400, 'INVALID_QUERY', 'find'],
      ['?collection=books,no%20name', 400, 'VALIDATION_FAILED', 'collection'],
      ['?limit=0', 400, 'VALIDATION_FAILED', 'limit'],
      ['?wait=61', 400, 'VALIDATION_FAILED', 'wait'],
      ['?views=x', 400, 'VALIDATION_FAILED', 'views'],
    ];
    for (const [query, status, code, detail] of cases) {
      const answer = await page(query);
      expect([query, answer.status, answer.body.code]).toEqual([query, status, code]);
      expect(Object.keys(answer.body.details)).toContain(detail);
      const stream = await open(query);
      expect([query, stream.status]).toEqual([query, status]);
    }
    expect((await page('?since=1.1-00000000')).body).toMatchObject({ code: 'CURSOR_GONE' });
    expect((await page('?since=9.1-00000000')).status).toBe(410);
    const { cursor } = (await page()).body;
    // Behind what was erased after the backup from which this history is.
    expect((await page(`?since=${cursor.replace('1.1-', '1.2-')}`)).body).toMatchObject({ code: 'CURSOR_GONE' });
    expect((await page('?collection=nothing')).body).toMatchObject({ code: 'COLLECTION_NOT_FOUND' });
    expect((await open('?wait=1')).status).toBe(400);
  });

  test('without a key there are public collections only, and no encrypted field', async () => {
    await app.store('open', [{ id: 'a', n: 1 }]);
    await app.call('POST', `/api/apps/${app.appId}/collections`, {
      name: 'closed',
      access_policy: { read: 'private' },
    });
    await app.store('closed', [{ id: 'secret' }]);
    const feed = await open('?collection=open', nobody);
    await app.store('open', [{ id: 'b', n: 2 }]);
    expect((await feed.changed(1)).map(shown)).toEqual([['b', 1, { id: 'b', n: 2 }]]);
    // What was replaced or deleted is for keys alone, so a height is no place to begin.
    expect((await page('?since=0&collection=open', nobody)).status).toBe(401);
    expect((await page('?collection=closed', nobody)).status).toBe(401);
    for (const query of ['', '?collection=open,closed', '?collection=closed']) {
      expect([query, (await open(query, nobody)).status]).toEqual([query, 401]);
    }
    await app.call('PUT', `/api/apps/${app.appId}/collections/open`, { access_policy: { read: 'private' } });
    expect((await feed.told('end')).data).toMatchObject({ code: 'UNAUTHENTICATED', retry: false });
    await feed.closed();
  });

  test('a revoked key ends its streams and its tokens', async () => {
    await app.store('books', [
      { id: 'a', owner: 'ann' },
      { id: 'b', owner: 'bob' },
    ]);
    const made = await app.call<{ key_id: string; app_key: string }>('POST', `/api/apps/${app.appId}/keys`, {
      name: 'reader',
      permissions: ['Read'],
    });
    const { token } = (
      await send<{ token: string }>(granary.url, 'POST', `/api/apps/${app.appId}/feed-tokens`, {
        key: made.body.app_key,
        body: { subscriptions: [{ as: 'mine', collection: 'books', find: { owner: 'ann' } }], ttl_seconds: 60 },
      })
    ).body;
    const byKey = await open('?since=0', { key: made.body.app_key });
    const byToken = await open(`?since=0&token=${token}`, { key: undefined });
    expect((await byKey.changed(2)).map(shown)).toHaveLength(2);
    expect((await byToken.changed(1)).map(({ data }) => [data.id, data.as])).toEqual([['a', ['mine']]]);
    expect((await page(`?token=${token}&collection=books`, nobody)).status).toBe(400);
    expect((await page(`?token=${token.slice(0, -3)}AAA`, nobody)).status).toBe(401);
    await app.call('DELETE', `${document('books', 'b')}?erase=true`);
    const erased = (await byToken.changed(2))[1]!.data;
    expect([erased.id, erased['id_sha256'] === undefined]).toEqual([undefined, false]);
    await app.call('DELETE', `/api/apps/${app.appId}/keys/${made.body.key_id}`);
    for (const feed of [byKey, byToken]) {
      expect((await feed.told('end')).data).toMatchObject({ code: 'UNAUTHENTICATED', retry: false });
      await feed.closed();
    }
    expect((await page(`?token=${token}`, nobody)).status).toBe(401);
  });
});
