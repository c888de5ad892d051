import { borrowGranary, newApp, send, transports, type Granary, type TestApp } from '../support/granary';

describe.each(transports)('joins in views (%s)', (transport) => {
  let granary: Granary;
  let app: TestApp;
  beforeAll(async () => {
    granary = await borrowGranary(transport);
    app = await newApp(granary);
    await app.store('users', [
      { id: 'ada', city: 'c1', orders: 'own' },
      { id: 'bob', city: 'c2' },
      { id: 'cyd', city: null },
    ]);
    await app.store('orders', [
      { id: 'o1', user: 'ada', amount: 1 },
      { id: 'o2', user: 'ada', amount: 2.5 },
      { id: 'o3', user: 'bob', amount: 4 },
      { id: 'o4', user: null, amount: 100 },
      { id: 'o5', user: 'ada', amount: 1_000, deleted: true },
    ]);
    await app.store('cities', [{ id: 'c1', name: 'Oslo' }]);
  });
  afterAll(() => granary.stop());

  const sources = ['users', 'orders', 'cities'];
  const orders = { on: { user: '$data.id' } };
  const create = (name: string, query: object, from: string[] = sources) =>
    app.call<{ ticket_id: string; details: object }>('POST', `/apps/${app.appId}/views`, {
      name,
      query,
      source_collections: from,
    });
  const rows = async (name: string, query: object, from?: string[]): Promise<unknown[]> => {
    const made = await create(name, query, from);
    expect(made.status).toBe(202);
    expect((await app.ended(made.body.ticket_id)).status).toBe('Completed');
    const read = await send<{ records: unknown[] }>(granary.url, 'GET', `/api/views/${app.appId}/${name}/data`);
    return read.body.records;
  };

  test('a row is a document with its partner as a member, one row for each pair, null without one', async () => {
    const query = { join: { orders }, select: ['id', 'orders.id', 'orders.amount'] };
    expect(await rows('pairs', query, ['users', 'orders'])).toEqual([
      { id: 'ada', orders: { id: 'o1', amount: 1 } },
      { id: 'ada', orders: { id: 'o2', amount: 2.5 } },
      { id: 'bob', orders: { id: 'o3', amount: 4 } },
      { id: 'cyd' },
    ]);
    expect(await rows('whole', { join: { orders }, find: { id: 'cyd' } }, ['users', 'orders'])).toEqual([
      { id: 'cyd', city: null, orders: null },
    ]);
  });

  test('joins are chained, inner ones leave rows without a partner out, and groups and conditions see the row', async () => {
    const join = {
      who: { collection: 'users', on: { id: '$data.user' }, type: 'inner' },
      cities: { on: { id: '$data.who.city' }, type: 'left' },
    };
    const query = {
      base: 'orders',
      join,
      group_by: ['cities.name'],
      aggregate: { total: { $sum: 'amount' }, users: { $count_distinct: 'who.id' }, last: { $last: 'who.id' } },
      sort_by: '-total',
    };
    expect(await rows('per_city', query)).toEqual([
      { cities: { name: null }, total: 4, users: 1, last: 'bob' },
      { cities: { name: 'Oslo' }, total: 3.5, users: 1, last: 'ada' },
    ]);
    const found = { base: 'orders', join, find: { 'cities.name': 'Oslo', amount: { gt: 1 } }, select: ['id'] };
    expect(await rows('in_oslo', found)).toEqual([{ id: 'o2' }]);
  });

  test('a join may have the name of the field that it goes by', async () => {
    const query = {
      join: { user: { collection: 'users', on: { id: '$data.user' }, type: 'inner' } },
      select: ['id', 'user.id'],
    };
    expect(await rows('users_of', query, ['orders', 'users'])).toEqual([
      { id: 'o1', user: { id: 'ada' } },
      { id: 'o2', user: { id: 'ada' } },
      { id: 'o3', user: { id: 'bob' } },
    ]);
  });

  test('a collection may be joined with itself', async () => {
    const query = {
      join: { others: { collection: 'orders', on: { user: '$data.user' } } },
      aggregate: { n: { $count: 'others' } },
    };
    expect(await rows('self', query, ['orders'])).toEqual([{ n: 5 }]);
  });

  test('the details of a view name the joined fields that no index is over', async () => {
    await rows('details', { join: { orders } }, ['users', 'orders']);
    const details = () => app.call('GET', `/apps/${app.appId}/views/details`);
    expect((await details()).body).toMatchObject({ unindexed_join_fields: ['orders.user'] });
  });

  test('a view over a private collection that it joins is private', async () => {
    await app.call('POST', `/api/apps/${app.appId}/collections`, {
      name: 'secret',
      access_policy: { read: 'private' },
    });
    const query = { join: { secret: { on: { id: '$data.id' } } } };
    const made = await create('with_secret', query, ['users', 'secret']);
    await app.ended(made.body.ticket_id);
    expect((await send(granary.url, 'GET', `/api/views/${app.appId}/with_secret/data`)).status).toBe(401);
  });

  const on = { id: '$data.id' };
  test.each([
    [{ join: 1 }, 'query.join'],
    [{ join: { 'a.b': { collection: 'orders', on } } }, 'query.join.a.b'],
    [{ join: { '': { collection: 'orders', on } } }, 'query.join.'],
    [{ join: { o: 1 } }, 'query.join.o'],
    [{ join: { o: { collection: 'orders', on, many: true } } }, 'query.join.o.many'],
    [{ join: { o: { collection: 'orders', on, type: 'outer' } } }, 'query.join.o.type'],
    [{ join: { o: { collection: 'orders' } } }, 'query.join.o.on'],
    [{ join: { o: { collection: 'orders', on: {} } } }, 'query.join.o.on'],
    [{ join: { o: { collection: 'orders', on: { id: 'id' } } } }, 'query.join.o.on.id'],
    [
      { join: { o: { collection: 'orders', on: { id: '$data.p.id' } }, p: { collection: 'cities', on } } },
      'query.join.o.on.id',
    ],
    [
      { join: { o: { collection: 'orders', on }, p: { collection: 'cities', on: { id: '$data.o' } } } },
      'query.join.p.on.id',
    ],
    [{ join: { o: { on } } }, 'query.join.o.collection'],
    [{ join: { orders } }, 'source_collections[2]'],
    [{ join: Object.fromEntries([1, 2, 3, 4, 5].map((at) => [`j${at}`, { collection: 'orders', on }])) }, 'query.join'],
    [{ base: 'none', join: { orders } }, 'query.base'],
  ])('the query %j is refused, with the part that is wrong', async (query, part) => {
    const refused = await create('refused', query);
    expect(refused.status).toBe(400);
    expect(Object.keys(refused.body.details)).toEqual([part]);
  });

  test('source collections are named once, used and at most 16', async () => {
    for (const [from, part] of [
      [['users', 'users'], 'source_collections[1]'],
      [['users', 'orders'], 'source_collections[1]'],
    ] as const) {
      const refused = await create('refused', {}, [...from]);
      expect([refused.status, Object.keys(refused.body.details)]).toEqual([400, [part]]);
    }
    const many = Array.from({ length: 17 }, (_, at) => `c${at}`);
    expect((await create('refused', {}, many)).status).toBe(400);
    expect(await create('refused', { join: { gone: { on } } }, ['users', 'gone'])).toMatchObject({
      status: 404,
      body: { code: 'COLLECTION_NOT_FOUND' },
    });
    const search = await create('refused', { join: { orders }, find: { 'orders.text': { $search: 'x' } } }, [
      'users',
      'orders',
    ]);
    expect(search).toMatchObject({ status: 400, body: { code: 'FIELD_NOT_INDEXED' } });
  });
});
