import { borrowGranary, newApp, send, transports, type Granary, type TestApp } from '../support/granary';
import { type FeedClient, FeedClients, type FeedOptions } from '../support/feed-client';

const nobody = { key: undefined };
const price = { pricing_model: 'per_access', price_per_access_utia: 5, app_owner_percentage: 0.7 };

describe.each(transports)('what each reader of a change feed gets (%s)', (transport) => {
  let granary: Granary;
  let app: TestApp;
  let path: string;
  const feeds = new FeedClients();
  beforeAll(async () => {
    granary = await borrowGranary(transport, 'simulated');
  });
  afterAll(() => granary.stop());
  beforeEach(async () => {
    app = await newApp(granary);
    path = `/api/apps/${app.appId}`;
  });
  afterEach(() => feeds.close());

  const open = (query: string, options: Partial<FeedOptions> = {}): Promise<FeedClient> =>
    feeds.open({ url: granary.url, path: `${path}/changes${query}`, key: app.key, ...options });
  const find = (filter: object) => `&find=${encodeURIComponent(JSON.stringify(filter))}`;

  test('encrypted fields are decrypted for a key with Read and left out for others, and filters ask for their equality', async () => {
    const made = await app.call('POST', `${path}/indexes`, {
      name: 'by_email',
      collection: 'people',
      field_name: 'email',
      index_type: 'encrypted',
    });
    expect(made.status).toBe(201);
    await app.store('people', [
      { id: 'a', email: 'ann@example.com', n: 1 },
      { id: 'b', email: 'bob@example.com', n: 2 },
    ]);
    const ofAnn = find({ email: 'ann@example.com' });
    const [reader, filtered, stranger] = [
      await open('?since=0&collection=people'),
      await open(`?since=0&collection=people${ofAnn}`),
      await open('?collection=people', nobody),
    ];
    await app.store('people', [{ id: 'a', email: 'other@example.com', n: 3 }]);
    const documents = async (feed: FeedClient, count: number) =>
      (await feed.changed(count)).map(({ data }) => data.document ?? data.reason);
    expect(await documents(reader, 3)).toEqual([
      { id: 'a', email: 'ann@example.com', n: 1 },
      { id: 'b', email: 'bob@example.com', n: 2 },
      { id: 'a', email: 'other@example.com', n: 3 },
    ]);
    expect(await documents(filtered, 2)).toEqual([{ id: 'a', email: 'ann@example.com', n: 1 }, 'filtered']);
    expect(await documents(stranger, 1)).toEqual([{ id: 'a', n: 3 }]);
    expect((await open(`?collection=people${ofAnn}`, nobody)).status).toBe(401);
    expect((await open(`?collection=people${find({ email: { startsWith: 'a' } })}`)).status).toBe(400);
  });

  test('another app is never heard of, whatever key is shown', async () => {
    const other = await newApp(granary);
    await other.store('open', [{ id: 'theirs' }]);
    await app.store('open', [{ id: 'ours' }]);
    const feed = await open('?since=0');
    const strange = await open('?collection=open', { key: other.key });
    await other.store('open', [{ id: 'theirs too' }]);
    await app.store('open', [{ id: 'ours too' }]);
    expect((await feed.changed(2)).map(({ data }) => data.id)).toEqual(['ours', 'ours too']);
    expect((await strange.changed(1)).map(({ data }) => data.id)).toEqual(['ours too']);
    // As a stranger it has no right to the whole.
    expect((await open('?since=0', { key: other.key })).status).toBe(401);
    const missing = await send(granary.url, 'GET', '/api/apps/no-such-app/changes?collection=x');
    expect([missing.status, missing.body['code']]).toEqual([404, 'APP_NOT_FOUND']);
  });

  test('a collection whose reads have a price has no feed but for keys with Read', async () => {
    await app.call('POST', `${path}/collections`, { name: 'sold', read_price_config: price });
    await app.store('sold', [{ id: 'a' }]);
    const refused = await open('?collection=sold', nobody);
    expect([refused.status, JSON.parse(refused.rest)]).toEqual([
      403,
      expect.objectContaining({ code: 'FEED_NOT_SOLD' }),
    ]);
    expect((await (await open('?since=0&collection=sold')).changed(1)).map(({ data }) => data.id)).toEqual(['a']);
  });

  test('strangers get what is present, never what was replaced, and learn that a public collection was dropped', async () => {
    await app.store('notes', [{ id: 'a', n: 1 }]);
    const before = await send<{ cursor: string }>(granary.url, 'GET', `${path}/changes?collection=notes`);
    await app.store('notes', [{ id: 'a', n: 2 }]);
    await app.store('notes', [{ id: 'a', n: 3 }]);
    await app.store('notes', [{ id: 'b', deleted: true }]);
    const ofCursor = `?since=${before.body.cursor}&collection=notes`;
    const feed = await open(ofCursor, nobody);
    const shown = async (count: number) =>
      (await feed.changed(count)).map(({ data }) => [data.id, data.document ?? data.reason]);
    expect(await shown(2)).toEqual([
      ['a', { id: 'a', n: 3 }],
      ['b', 'deleted'],
    ]);
    // Whichever version a filter would have matched before, the answer is the same.
    const filtered = await Promise.all([1, 2, 4].map((n) => open(`${ofCursor}${find({ n })}`, nobody)));
    for (const each of filtered) {
      expect((await each.changed(2)).map(({ data }) => [data.id, data.document ?? data.reason])).toEqual([
        ['a', 'filtered'],
        ['b', 'deleted'],
      ]);
    }
    await app.call('DELETE', `${path}/collections/notes`, { force: true });
    await app.store('notes', [{ id: 'again' }]);
    expect((await shown(3))[2]).toEqual([undefined, 'dropped']);
    for (const { changes } of filtered) {
      expect(changes.map(({ data }) => data.document)).not.toContainEqual({ id: 'a', n: 2 });
    }
    await app.call('POST', `${path}/collections`, { name: 'closed', access_policy: { read: 'private' } });
    await app.store('closed', [{ id: 'private' }]);
    await app.call('DELETE', `${path}/collections/closed`, { force: true });
    await app.store('closed', [{ id: 'public' }]);
    const later = await open(`?since=${feed.cursor!}&collection=closed`, nobody);
    expect((await later.changed(1)).map(({ data }) => data.id)).toEqual(['public']);
  });

  test('strangers are told of the erasures of a collection that was public then, and of no others', async () => {
    await app.store('diary', [{ id: 'secret' }, { id: 'open' }]);
    await app.call('PUT', `${path}/collections/diary`, { access_policy: { read: 'private' } });
    const { body } = await app.call<{ cursor: string }>('GET', `${path}/changes?collection=diary`);
    await app.call('DELETE', `${path}/collections/diary/documents/secret?erase=true`);
    await app.call('PUT', `${path}/collections/diary`, { access_policy: { read: 'public' } });
    await app.call('DELETE', `${path}/collections/diary/documents/open?erase=true`);
    const query = `?since=${body.cursor}&collection=diary`;
    const idsOf = async (feed: FeedClient, count: number) => (await feed.changed(count)).map(({ data }) => data.id);
    expect(await idsOf(await open(query), 2)).toEqual(['secret', 'open']);
    for (const filter of ['', find({ n: 1 })]) {
      expect(await idsOf(await open(query + filter, nobody), 1)).toEqual(['open']);
    }
  });

  test('a token reads its subscriptions alone, and one for what may not be read is not made', async () => {
    await app.store('books', [{ id: 'a', owner: 'ann' }]);
    const token = (body: object, key = app.key) => send(granary.url, 'POST', `${path}/feed-tokens`, { key, body });
    const subscriptions = [{ as: 'mine', collection: 'books', find: { owner: 'ann' } }];
    expect((await token({ subscriptions }, '')).status).toBe(401);
    expect((await token({ subscriptions: [{ as: 'x', collection: 'nothing' }] })).status).toBe(404);
    const wrong = await token({ subscriptions: [{ as: 'x', collection: 'books', find: { owner: { gte: [1] } } }] });
    expect([wrong.status, Object.keys(wrong.body['details'] as object)]).toEqual([
      400,
      ['subscriptions[0].find.owner.gte'],
    ]);
    const many = Array.from({ length: 32 }, (_, index) => ({
      ...subscriptions[0],
      as: `s${index}`,
      find: { owner: 'x'.repeat(300) },
    }));
    expect((await token({ subscriptions: many })).status).toBe(400);
    const made = await token({ subscriptions, select: ['id'], ttl_seconds: 1 });
    // The hash of a whole text tells something of what is not shown.
    expect(made.headers.get('cache-control')).toBe('no-store');
    const feed = await open(`?since=0&token=${made.body['token'] as string}`, nobody);
    expect((await feed.changed(1)).map(({ data }) => [data.as, data.document, data['sha256']])).toEqual([
      [['mine'], { id: 'a' }, undefined],
    ]);
    expect((await feed.told('end')).data).toMatchObject({
      code: 'UNAUTHENTICATED',
      message: 'The feed token has expired',
    });
    const other = await newApp(granary);
    const elsewhere = await send(
      granary.url,
      'GET',
      `/api/apps/${other.appId}/changes?token=${made.body['token'] as string}`,
    );
    expect(elsewhere.status).toBe(401);
  });
});
