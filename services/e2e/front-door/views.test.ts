import { borrowGranary, newApp, send, transports, type Granary, type TestApp } from '../support/granary';

const time = expect.stringMatching(/^\d{4}-\d\d-\d\dT/) as string;
const text = expect.stringMatching(/\S/) as string;

describe.each(transports)('views and predefined queries (%s)', (transport) => {
  let granary: Granary;
  let app: TestApp;
  beforeAll(async () => {
    granary = await borrowGranary(transport);
  });
  afterAll(() => granary.stop());
  beforeEach(async () => {
    app = await newApp(granary);
    await app.store('trades', [
      { id: 'a', market: 'BTC', price: 10.1, side: { of: 'buy' } },
      { id: 'b', market: 'BTC', price: 10.2, side: { of: 'sell' } },
      { id: 'c', market: 'ETH', price: 3, side: { of: 'buy' } },
      { id: 'd', market: 'ETH', price: null },
      { id: 'e', price: 1 },
      { id: 'f', market: 'BTC', price: 1_000, deleted: true },
    ]);
  });

  const query = {
    group_by: ['market'],
    aggregate: {
      n: { $count: '*' },
      priced: { $count: 'price' },
      total: { $sum: 'price' },
      mean: { $avg: 'price' },
      low: { $min: 'price' },
      high: { $max: 'price' },
      sides: { $count_distinct: 'side.of' },
      first: { $first: 'id' },
      last: { $last: 'id' },
    },
    sort_by: ['market'],
  };
  const definition = {
    name: 'by_market',
    query,
    source_collections: ['trades'],
    variables: { market: 'market', min_total: 'total.$gte' },
  };
  const create = (more: object = {}) =>
    app.call<{ ticket_id: string }>('POST', `/apps/${app.appId}/views`, { ...definition, ...more });
  const created = async (more: object = {}) => {
    const made = await create(more);
    expect(made.status).toBe(202);
    expect((await app.ended(made.body.ticket_id)).status).toBe('Completed');
    return made;
  };
  const data = (more = '', name = 'by_market') =>
    send<{ records: Array<Record<string, unknown>>; refreshed_at: string }>(
      granary.url,
      'GET',
      `/api/views/${app.appId}/${name}/data${more}`,
    );
  const markets = async (more: string) => (await data(more)).body.records?.map(({ market }) => market);

  test('a view is changed beside its rows, by a task', async () => {
    await created();
    const path = `/apps/${app.appId}/views/by_market`;
    const changed = await app.call<{ ticket_id: string }>('PUT', path, { query: { ...query, limit: 1 } });
    expect(changed.status).toBe(202);
    expect((await app.ended(changed.body.ticket_id)).status).toBe('Completed');
    expect(await markets('')).toEqual(['BTC']);
  });

  test('a view is created, built by a task, and read exactly', async () => {
    const made = await created();
    expect(made.body).toEqual({ success: true, message: text, view_name: 'by_market', ticket_id: text });
    const read = await data();
    expect(read.status).toBe(200);
    expect(read.body).toEqual({
      records: [
        {
          market: 'BTC',
          n: 2,
          priced: 2,
          total: 20.3,
          mean: 10.15,
          low: 10.1,
          high: 10.2,
          sides: 2,
          first: 'a',
          last: 'b',
        },
        { market: 'ETH', n: 2, priced: 1, total: 3, mean: 3, low: 3, high: 3, sides: 1, first: 'c', last: 'd' },
        { market: null, n: 1, priced: 1, total: 1, mean: 1, low: 1, high: 1, sides: 0, first: 'e', last: 'e' },
      ],
      total: 3,
      page: 1,
      limit: 100,
      refreshed_at: time,
      refresh_mode: 'lazy',
    });
  });

  test('the rows of a view are filtered, selected, sorted and paged, also by its variables', async () => {
    await created();
    expect(await markets('?market=BTC')).toEqual(['BTC']);
    expect(await markets('?min_total=3')).toEqual(['BTC', 'ETH']);
    expect(await markets('?min_total=3&market=ETH')).toEqual(['ETH']);
    expect(await markets(`?filter=${encodeURIComponent('{"n":2,"total":{"lt":20}}')}`)).toEqual(['ETH']);
    expect(await markets('?sort=-total')).toEqual(['BTC', 'ETH', null]);
    expect(await markets('?sort=n,-market')).toEqual([null, 'ETH', 'BTC']);
    const page = await data('?sort=market&limit=1&offset=1&select=market,total');
    expect(page.body).toMatchObject({ records: [{ market: 'ETH', total: 3 }], total: 3, page: 2, limit: 1 });
    expect(Object.keys(page.body.records[0]!)).toEqual(['market', 'total']);
  });

  test('a view is described and listed to callers who may read', async () => {
    await created();
    const shown = {
      ...definition,
      refresh_mode: 'lazy',
      changes: false,
      access_policy: { read: 'public' },
      status: 'ready',
      error: null,
      row_count: 3,
      unindexed_join_fields: [],
      created_at: time,
      refreshed_at: time,
    };
    expect((await app.call('GET', `/apps/${app.appId}/views/by_market`)).body).toEqual(shown);
    expect((await app.call('GET', `/api/apps/${app.appId}/views`)).body).toEqual({ views: [shown] });
  });

  test('a view stays as it was built until it is refreshed', async () => {
    await created();
    const before = (await data()).body;
    await app.store('trades', [{ id: 'g', market: 'SOL', price: 5 }]);
    expect((await data()).body).toEqual(before);
    const refresh = await app.call<{ ticket_id: string }>('POST', `/apps/${app.appId}/views/by_market/refresh`);
    expect(refresh.status).toBe(202);
    expect(refresh.body).toEqual({ success: true, message: text, ticket_id: text });
    await app.ended(refresh.body.ticket_id);
    const after = (await data()).body;
    expect(after.records.map(({ market }) => market)).toEqual(['BTC', 'ETH', 'SOL', null]);
    expect(Date.parse(after.refreshed_at)).toBeGreaterThan(Date.parse(before.refreshed_at));
  });

  test('the name of a view is taken until it is deleted', async () => {
    await created();
    for (const taken of [{}, { name: 'trades' }]) {
      const refused = await app.call<{ error: string }>('POST', `/apps/${app.appId}/views`, {
        ...definition,
        ...taken,
      });
      expect(refused).toMatchObject({ status: 409, body: { code: 'ALREADY_EXISTS' } });
      expect(refused.body.error).toContain('already exists');
    }
    const gone = await app.call('DELETE', `/apps/${app.appId}/views/by_market`);
    expect(gone).toMatchObject({ status: 200, body: { success: true, message: text } });
    expect(await data()).toMatchObject({ status: 404, body: { code: 'VIEW_NOT_FOUND' } });
    await created({ query: {} });
    expect((await data()).body).toMatchObject({ total: 5 });
  });

  test.each([
    ['of the documents themselves', { find: { market: 'BTC' } }, [{ id: 'a' }, { id: 'b' }]],
    ['under its other names', { where: { market: 'ETH' }, orderBy: ['-id'], limit: 1 }, [{ id: 'd' }]],
    ['with a selection', { filter: { price: { gt: 10 } }, select: ['price'] }, [{ price: 10.1 }, { price: 10.2 }]],
    ['of one row over everything', { aggregate: { n: { $count: '*' }, s: { $sum: 'price' } } }, [{ n: 5, s: 24.3 }]],
    [
      'of one row over nothing',
      { find: { market: 'none' }, aggregate: { n: { $count: '*' }, s: { $sum: 'price' }, m: { $avg: 'price' } } },
      [{ n: 0, s: 0, m: null }],
    ],
    [
      'grouped by a nested field',
      { groupBy: 'side.of', aggregate: { n: { $count: '*' } }, sort_by: { n: 'desc' }, limit: 1 },
      [{ n: 2 }],
    ],
  ])('a view may be %s', async (_, viewQuery, records) => {
    await created({ query: viewQuery, variables: null });
    const { body } = await data();
    expect(body.records).toHaveLength(records.length);
    expect(body.records).toMatchObject(records);
  });

  test('a view without a policy is as private as its source, and can be published explicitly', async () => {
    await app.call('PUT', `/api/apps/${app.appId}/collections/trades`, { access_policy: { read: 'private' } });
    const create = async (name: string, more: object) => {
      const made = await app.call<{ ticket_id: string }>('POST', `/apps/${app.appId}/views`, {
        ...definition,
        name,
        ...more,
      });
      expect(made.status).toBe(202);
      await app.ended(made.body.ticket_id);
      return `/api/views/${app.appId}/${name}/data`;
    };
    const inherited = await create('inherited', {});
    expect((await send(granary.url, 'GET', inherited)).status).toBe(401);
    expect((await app.call('GET', inherited)).status).toBe(200);
    const published = await create('published', { access_policy: { read: 'public' } });
    expect((await send(granary.url, 'GET', published)).status).toBe(200);
  });

  test('a view created by 20 concurrent callers is one', async () => {
    const answers = await Promise.all(Array.from({ length: 20 }, () => create()));
    expect(answers.map(({ status }) => status).sort()).toEqual([202, ...Array<number>(19).fill(409)]);
  });

  describe('a predefined query', () => {
    const stored = {
      name: 'trades_of',
      source_collection: 'trades',
      base_query: { find: { price: { gt: 0 } }, select: ['id', 'market'], sort: ['-id'], limit: 10 },
      parameters: [
        { name: 'market', field_path: 'market', required: true, description: 'Which market' },
        { name: 'min', field_path: 'price.$gte', default: 5 },
        { name: 'side', field_path: 'side.of' },
      ],
      description: 'Trades of a market',
      version: '1.0',
      example_request: { market: 'BTC' },
      example_response: [{ id: 'a' }],
    };
    const run = (more: string) =>
      send<{ records: Array<{ id: string }> }>(granary.url, 'GET', `/api/queries/${app.appId}/trades_of/data?${more}`);
    const ids = async (more: string) => (await run(more)).body.records?.map(({ id }) => id).join('');
    const make = () => app.call('POST', `/apps/${app.appId}/queries`, stored);

    test('a predefined query is created, described and listed to everyone', async () => {
      const made = await make();
      expect(made.status).toBe(201);
      expect(made.body).toEqual({ ...stored, versions: ['1.0'], access_policy: { read: 'public' }, created_at: time });
      expect((await app.call('GET', `/apps/${app.appId}/queries/trades_of`)).body).toEqual(made.body);
      for (const prefix of ['', '/api']) {
        const listed = await send(granary.url, 'GET', `${prefix}/apps/${app.appId}/queries`);
        expect(listed.body).toEqual({ app_id: app.appId, queries: [made.body] });
      }
      expect(await make()).toMatchObject({ status: 409, body: { code: 'ALREADY_EXISTS' } });
    });

    test('everyone can run a predefined query with its parameters, their defaults and a page', async () => {
      await make();
      const answer = await run('market=BTC');
      expect(answer.body).toEqual({
        records: [
          { id: 'b', market: 'BTC' },
          { id: 'a', market: 'BTC' },
        ],
        total: 2,
        page: 1,
        limit: 10,
      });
      expect(await ids('market=ETH')).toBe('');
      expect(await ids('market=ETH&min=3')).toBe('c');
      expect(await ids('market=BTC&min=10.15')).toBe('b');
      expect(await ids('market=BTC&side=buy')).toBe('a');
      expect((await run('market=BTC&limit=1&offset=1')).body).toMatchObject({
        records: [{ id: 'a' }],
        page: 2,
        limit: 1,
      });
    });

    test('a predefined query can be deleted', async () => {
      await make();
      const gone = await app.call('DELETE', `/apps/${app.appId}/queries/trades_of`);
      expect(gone).toMatchObject({ status: 200, body: { success: true, message: text } });
      expect(await run('market=BTC')).toMatchObject({ status: 404, body: { code: 'QUERY_NOT_FOUND' } });
    });
  });
});
