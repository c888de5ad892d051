import { borrowGranary, newApp, send, transports, type Granary, type TestApp } from '../support/granary';
import { type FeedClient, FeedClients, type FeedEvent, type FeedOptions } from '../support/feed-client';

interface Page {
  changes: Array<
    { event: string; id: string; height: number; cursor: string; document?: object } & Record<string, unknown>
  >;
  cursor: string;
  head: number;
  more: boolean;
  code: string;
  details: Record<string, string[]>;
}

interface Refusal {
  code: string;
  error: string;
  details: Record<string, string[]>;
  ticket_id: string;
}

const nobody = { key: undefined };
const price = { pricing_model: 'per_access', price_per_access_utia: 5, app_owner_percentage: 0.7 };
const counts = { group_by: ['market'], aggregate: { trades: { $count: '*' } } };

const shown = ({ event, data: { document, reason } }: FeedEvent) => [event, document ?? reason];

describe.each(transports)('feeds of the rows of views (%s)', (transport) => {
  let granary: Granary;
  let app: TestApp;
  const feeds = new FeedClients();
  beforeAll(async () => {
    granary = await borrowGranary(transport, 'simulated');
  });
  afterAll(() => granary.stop());
  beforeEach(async () => {
    app = await newApp(granary);
  });
  afterEach(() => feeds.close());

  const viewPath = (name: string) => `/apps/${app.appId}/views/${name}`;
  const create = async (name: string, more: object = {}) => {
    const body = { name, source_collections: ['trades'], query: counts, refresh_mode: 'live', changes: true, ...more };
    const made = await app.call<Refusal>('POST', `/apps/${app.appId}/views`, body);
    expect([made.status, made.body]).toEqual([202, expect.anything()]);
    expect((await app.ended(made.body.ticket_id)).status).toBe('Completed');
  };
  const change = (name: string, body: object) => app.call<Refusal>('PUT', viewPath(name), body);
  const open = (query: string, options: Partial<FeedOptions> = {}): Promise<FeedClient> =>
    feeds.open({ url: granary.url, path: `/api/apps/${app.appId}/changes${query}`, key: app.key, ...options });
  const page = (query: string, { key }: { key?: string | undefined } = app) =>
    send<Page>(granary.url, 'GET', `/api/apps/${app.appId}/changes${query}`, { key });
  const remove = (id: string) =>
    app.call('DELETE', `/api/apps/${app.appId}/collections/trades/documents/${id}`).then(({ status }) => status);

  test('a feed from 0 has all rows, and then each that comes, changes or goes, in its newest state', async () => {
    await app.store('trades', [
      { id: 'a', market: 'BTC' },
      { id: 'b', market: 'ETH' },
    ]);
    await create('seen');
    const feed = await open('?since=0&view=seen');
    expect((await feed.changed(2)).map(shown).sort()).toEqual([
      ['put', { market: 'BTC', trades: 1 }],
      ['put', { market: 'ETH', trades: 1 }],
    ]);
    await app.store('trades', [{ id: 'c', market: 'BTC' }]);
    expect((await feed.changed(3)).slice(2).map(shown)).toEqual([['put', { market: 'BTC', trades: 2 }]]);
    expect(await remove('b')).toBe(200);
    const [, , , removal] = await feed.changed(4);
    const eth = feed.changes.find(({ data }) => data.document?.['market'] === 'ETH')!;
    expect(removal!.id).toMatch(/^3\.0\.\d+-[0-9a-f]{8}$/);
    expect(removal).toMatchObject({
      event: 'remove',
      data: { height: 3, view: 'seen', id: eth.data.id, reason: 'deleted', last: true },
    });
  });

  test('a write that leaves the text of a row as it is tells nothing, and commits of others move the cursor on', async () => {
    await app.store('trades', [{ id: 'a', market: 'BTC', n: 1 }]);
    await create('seen');
    const before = (await page('?view=seen')).body;
    expect(before).toMatchObject({ changes: [], head: 1, more: false });
    await app.store('trades', [{ id: 'a', market: 'BTC', n: 2 }]);
    await app.store('others', [{ id: 'x' }]);
    expect((await page(`?view=seen&since=${before.cursor}`)).body).toMatchObject({ changes: [], head: 3, more: false });
    await app.store('trades', [{ id: 'z', market: 'BTC' }]);
    const { changes } = (await page(`?view=seen&since=${before.cursor}`)).body;
    expect(changes.map(({ event, height, document }) => [event, height, document])).toEqual([
      ['put', 4, { market: 'BTC', trades: 2 }],
    ]);
  });

  test('the rows of a large commit are told page by page, each once, whatever the size of a page', async () => {
    await app.store('trades', [{ id: 'first' }]);
    await create('all', { query: { select: ['id'] } });
    const ids = Array.from({ length: 2_500 }, (_, index) => `t${index}`);
    await app.store(
      'trades',
      ids.map((id) => ({ id, n: 1 })),
    );
    const told: string[] = [];
    let since = '0';
    for (let more = true; more;) {
      const { body } = await page(`?view=all&limit=${700 - since.length}&since=${since}`);
      told.push(...body.changes.map(({ id }) => id));
      ({ cursor: since, more } = body);
    }
    expect(told.sort()).toEqual([...ids, 'first'].sort());
    expect((await page(`?view=all&since=${since}`)).body.changes).toEqual([]);
  });

  test('one stream has documents and rows, a commit’s rows before its documents, and goes on behind each cursor', async () => {
    await app.store('trades', [{ id: 'a', market: 'BTC' }]);
    await create('seen');
    const body = {
      since: 'now',
      subscriptions: [
        { as: 'trades', collection: 'trades' },
        { as: 'totals', view: 'seen' },
      ],
    };
    const feed = await open('', { body });
    await feed.told('progress');
    await app.store('trades', [
      { id: 'b', market: 'ETH' },
      { id: 'c', market: 'BTC' },
    ]);
    const changes = await feed.changed(4);
    expect(changes.map(({ data }) => [data.as, data['view'] ?? data.collection, data.last])).toEqual([
      [['totals'], 'seen', undefined],
      [['totals'], 'seen', undefined],
      [['trades'], 'trades', undefined],
      [['trades'], 'trades', true],
    ]);
    for (const [index, { id }] of changes.entries()) {
      const path = `/api/apps/${app.appId}/changes`;
      const rest = await send<Page>(granary.url, 'POST', path, { key: app.key, body: { ...body, since: id } });
      expect(rest.body.changes.map(({ cursor }) => cursor)).toEqual(changes.slice(index + 1).map((each) => each.id));
    }
  });

  test('several views and collections are followed from 0 on, page by page, each row and document once', async () => {
    await app.store('trades', [{ id: 'first', market: 'BTC' }]);
    await create('all', { query: { select: ['id'] } });
    for (let count = 0; count < 30; count += 1)
      await app.store('trades', [{ id: `t${count}`, market: `m${count % 7}` }]);
    // Its log begins behind much of the other.
    await create('seen');
    for (let count = 0; count < 30; count += 1)
      await app.store('trades', [{ id: `u${count}`, market: `m${count % 5}` }]);
    const subscriptions = [
      { as: 'all', view: 'all' },
      { as: 'seen', view: 'seen' },
      { as: 'trades', collection: 'trades' },
    ];
    const told = new Map<string, object | undefined>();
    let since = '0';
    for (let more = true; more;) {
      const body = { since, subscriptions, limit: 7 };
      const read = await send<Page>(granary.url, 'POST', `/api/apps/${app.appId}/changes`, { key: app.key, body });
      expect([read.status, read.body]).toEqual([200, expect.anything()]);
      for (const { id, document, as: names } of read.body.changes) told.set(`${String(names)} ${id}`, document);
      ({ cursor: since, more } = read.body);
    }
    const rows = async (name: string) => {
      const path = `/api/views/${app.appId}/${name}/data?limit=1000`;
      return (await app.call<{ records: object[] }>('GET', path)).body.records;
    };
    const toldOf = (name: string) => [...told].filter(([key]) => key.startsWith(`${name} `)).map(([, row]) => row);
    const texts = (records: ReadonlyArray<object | undefined>) => records.map((row) => JSON.stringify(row)).sort();
    expect(texts(toldOf('all'))).toEqual(texts(await rows('all')));
    expect(texts(toldOf('seen'))).toEqual(texts(await rows('seen')));
    expect(toldOf('trades')).toHaveLength(61);
  });

  test('a live feed is not reset by a view whose log begins while others are followed', async () => {
    await app.store('trades', [{ id: 'a', market: 'BTC' }]);
    await create('one');
    const first = await open('?since=0&view=one');
    await first.changed(1);
    for (const name of ['two', 'three', 'four']) {
      await create(name, { changes: false });
      expect((await change(name, { changes: true })).status).toBe(200);
      const feed = await open(`?since=0&view=${name}`);
      await feed.changed(1);
      await app.store('trades', [{ id: name, market: 'ETH' }]);
      await feed.changed(2);
      expect(feed.events.map(({ event }) => event)).not.toContain('reset');
    }
    await first.changed(4);
  });

  test('rows that go with an erased document are told', async () => {
    await app.store('trades', [
      { id: 'a', market: 'BTC' },
      { id: 'b', market: 'ETH' },
    ]);
    await create('all', { query: {} });
    const feed = await open('?since=0&view=all');
    await feed.changed(2);
    const path = `/api/apps/${app.appId}/collections/trades/documents/a?erase=true`;
    expect((await app.call('DELETE', path)).status).toBe(200);
    const removal = (await feed.changed(3)).at(-1)!;
    expect(removal.data).toMatchObject({ id: 'a', view: 'all', reason: 'deleted' });
    expect((await page(`?view=all&since=${removal.id}`)).body).toMatchObject({ changes: [], more: false });
  });

  test('documents=false leaves the rows out, and select chooses their members', async () => {
    await app.store('trades', [{ id: 'a', market: 'BTC' }]);
    await create('seen');
    const [bare] = (await page('?view=seen&since=0&documents=false')).body.changes;
    expect(Object.keys(bare!).sort()).toEqual(['cursor', 'event', 'height', 'id', 'last', 'view']);
    const [selected] = (await page('?view=seen&since=0&select=trades')).body.changes;
    expect(selected!.document).toEqual({ trades: 1 });
  });

  test('changes are switched on and off without a build, and show in the view', async () => {
    await app.store('trades', [{ id: 'a', market: 'BTC' }]);
    await create('seen', { changes: false });
    expect((await page('?view=seen')).body).toMatchObject({ code: 'VIEW_HAS_NO_CHANGES' });
    expect(await change('seen', { changes: true })).toMatchObject({ status: 200, body: { success: true } });
    expect((await app.call('GET', viewPath('seen'))).body).toMatchObject({ changes: true, status: 'ready' });
    const feed = await open('?since=0&view=seen');
    expect((await feed.changed(1)).map(shown)).toEqual([['put', { market: 'BTC', trades: 1 }]]);
    expect((await change('seen', { changes: true })).status).toBe(200);
    await app.store('trades', [{ id: 'b', market: 'BTC' }]);
    await feed.changed(2);
    expect((await change('seen', { changes: false })).status).toBe(200);
    expect((await feed.told('end')).data).toMatchObject({ code: 'VIEW_HAS_NO_CHANGES', retry: false });
    const [{ id: last }] = [feed.changes.at(-1)!];
    // What has changed meanwhile was not logged.
    await app.store('trades', [{ id: 'c', market: 'BTC' }]);
    expect((await change('seen', { changes: true })).status).toBe(200);
    expect(await page(`?view=seen&since=${last}`)).toMatchObject({ status: 410, body: { code: 'CURSOR_GONE' } });
    expect((await page('?view=seen&since=0')).body.changes.map(({ document }) => document)).toEqual([
      { market: 'BTC', trades: 3 },
    ]);
  });

  test('a view that is built again ends its feeds with a reset, and its name made anew is another view', async () => {
    await app.store('trades', [{ id: 'a', market: 'BTC' }]);
    await create('seen');
    const feed = await open('?since=0&view=seen');
    const [{ id: cursor }] = (await feed.changed(1)) as [FeedEvent];
    const changed = await change('seen', { query: { group_by: ['market'], aggregate: { n: { $count: '*' } } } });
    expect((await app.ended(changed.body.ticket_id)).status).toBe('Completed');
    expect((await feed.told('reset')).data).toMatchObject({ code: 'CURSOR_GONE' });
    expect((await feed.told('end')).data).toMatchObject({ code: 'CURSOR_GONE', retry: false });
    expect((await page(`?view=seen&since=${cursor}`)).body).toMatchObject({ code: 'CURSOR_GONE' });
    const again = await open('?since=0&view=seen');
    expect((await again.changed(1)).map(shown)).toEqual([['put', { market: 'BTC', n: 1 }]]);
    expect((await app.call('DELETE', viewPath('seen'))).status).toBe(200);
    expect((await again.told('end')).data).toMatchObject({ code: 'VIEW_NOT_FOUND' });
    await create('seen', { query: { group_by: ['owner'], aggregate: { n: { $count: '*' } } } });
    const last = again.changes.at(-1)!.id;
    expect((await page(`?view=seen&since=${last}`)).body).toMatchObject({ code: 'CURSOR_GONE' });
  });

  test('a feed of a view that is being built gets its rows once it is', async () => {
    await app.store('trades', [{ id: 'a', market: 'BTC' }]);
    const view = { name: 'seen', source_collections: ['trades'], query: counts, refresh_mode: 'live', changes: true };
    expect((await app.call('POST', `/apps/${app.appId}/views`, view)).status).toBe(202);
    const [early, now] = [await open('?since=0&view=seen'), await page('?view=seen')];
    expect((await early.changed(1)).map(shown)).toEqual([['put', { market: 'BTC', trades: 1 }]]);
    expect(now.status).toBe(200);
    await app.store('trades', [{ id: 'b', market: 'BTC' }]);
    const { changes } = (await page(`?view=seen&since=${now.body.cursor}`)).body;
    expect(changes.at(-1)!.document).toEqual({ market: 'BTC', trades: 2 });
  });

  test('what cannot be followed is refused, with what to do', async () => {
    await app.store('trades', [{ id: 'a', market: 'BTC' }]);
    await create('lazy', { refresh_mode: 'lazy', changes: false });
    await create('plain', { changes: false });
    await create('seen');
    const refused = async (query: string) => {
      const { status, body } = await page(query);
      return [status, body.code, (body as unknown as Refusal).error];
    };
    expect(await refused('?view=lazy')).toEqual([409, 'VIEW_HAS_NO_CHANGES', expect.stringContaining('is lazy')]);
    expect(await refused('?view=plain')).toEqual([
      409,
      'VIEW_HAS_NO_CHANGES',
      expect.stringContaining('"changes": true'),
    ]);
    expect((await refused('?view=none')).slice(0, 2)).toEqual([404, 'VIEW_NOT_FOUND']);
    expect((await refused('?view=a%2Fb')).slice(0, 2)).toEqual([400, 'VALIDATION_FAILED']);
    for (const [name, value] of [
      ['collection', 'trades'],
      ['find', '{"market":"BTC"}'],
      ['mode', 'latest'],
    ]) {
      const { status, body } = await page(`?view=seen&${name}=${encodeURIComponent(value!)}`);
      expect([status, body.details]).toEqual([400, { [name!]: [expect.stringContaining('not for a view')] }]);
    }
    const subscriptions = [{ as: 'x', view: 'seen', collection: 'trades' }];
    const posted = await app.call<Refusal>('POST', `/api/apps/${app.appId}/changes`, { subscriptions });
    expect([posted.status, posted.body.details]).toEqual([400, { 'subscriptions[0].collection': [expect.anything()] }]);
    const bad = async (more: object) => {
      const body = { name: 'bad', source_collections: ['trades'], query: counts, ...more };
      const answer = await app.call<Refusal>('POST', `/apps/${app.appId}/views`, body);
      return [answer.status, Object.keys(answer.body.details)];
    };
    expect(await bad({ changes: true })).toEqual([400, ['changes']]);
    expect(await bad({ changes: true, refresh_mode: 'live', query: { ...counts, limit: 3 } })).toEqual([
      400,
      ['changes'],
    ]);
    expect(await bad({ changes: null, refresh_mode: 'live' })).toEqual([400, ['changes']]);
    expect((await change('seen', { refresh_mode: 'lazy' })).body.details).toEqual({ changes: [expect.anything()] });
    expect((await change('seen', { refresh_mode: 'lazy', changes: false })).status).toBe(202);
  });

  test('without a key there are public views without a price, from 0 or now on', async () => {
    await app.store('trades', [{ id: 'a', market: 'BTC' }]);
    await create('seen');
    const feed = await open('?since=0&view=seen', nobody);
    expect((await feed.changed(1)).map(shown)).toEqual([['put', { market: 'BTC', trades: 1 }]]);
    // By the ids of rows one could tell what they are made of.
    const known = (await page('?since=0&view=seen')).body.changes[0]!.id;
    expect(feed.changes[0]!.data.id).toMatch(/^[0-9a-f]{32}$/);
    expect(feed.changes[0]!.data.id).not.toBe(known);
    expect((await page('?since=1&view=seen', nobody)).status).toBe(401);
    expect((await change('seen', { access_policy: { read: 'private' } })).status).toBe(200);
    expect((await feed.told('end')).data).toMatchObject({ code: 'UNAUTHENTICATED' });
    expect((await page('?view=seen', nobody)).status).toBe(401);
    const subscriptions = [{ as: 'totals', view: 'seen' }];
    const made = await app.call<{ token: string }>('POST', `/api/apps/${app.appId}/feed-tokens`, { subscriptions });
    const byToken = await page(`?since=0&token=${made.body.token}`, nobody);
    expect(byToken.body.changes).toEqual([expect.objectContaining({ as: ['totals'], view: 'seen' })]);
    expect((await change('seen', { access_policy: { read: 'public' }, read_price_config: price })).status).toBe(200);
    expect((await page('?view=seen', nobody)).body).toMatchObject({ code: 'FEED_NOT_SOLD' });
    expect((await page('?view=seen')).status).toBe(200);
  });
});
