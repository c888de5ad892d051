import { randomUUID } from 'node:crypto';
import { borrowGranary, newApp, send, transports, type Granary, type TestApp } from '../support/granary';

const byAuthor = { resolve: { find: { id: '$data.author' }, select: { name: true } }, model: 'people', many: false };

/** A join of nothing, to nest and to count. */
const join = (find: object, more: object = {}) => ({ resolve: { find }, model: 'people', ...more });
const nested = (levels: number): object => join(levels === 1 ? {} : { next: nested(levels - 1) });

describe.each(transports)('joins (%s)', (transport) => {
  let granary: Granary;
  let app: TestApp;
  beforeAll(async () => {
    granary = await borrowGranary(transport);
    app = await newApp(granary);
    await app.store('people', [
      { id: 'ada', name: 'Ada', boss: 'bob' },
      { id: 'bob', name: 'Bob', boss: null },
      { id: 'cyd', name: 'Cyd', deleted: true },
    ]);
    await app.call(
      'POST',
      '/store',
      `{"root":"${app.appId}::posts","data":[
      {"id":"p1","author":"ada","price":1.0,"big":9007199254740993,"note":"a \\"}\\" \\\\ b"},
      {"id":"p2","author":"cyd","price":2.50},{"id":"p3","author":null},{"id":"p4"}]}`,
    );
    await app.store('comments', [
      { id: 'c2', post: 'p1', by: 'bob' },
      { id: 'c1', post: 'p1', by: 'ada' },
      { id: 'c3', post: 'p2', by: 'nobody' },
    ]);
  });
  afterAll(() => granary.stop());

  const refusal = async (find: object) => {
    const { status, body } = await app.list('posts', { find });
    return [status, body];
  };

  test('joins add members and filter nothing; numbers come as they were written', async () => {
    const comments = {
      resolve: { find: { post: '$parent.id', by: { ...join({ id: '$data.by', name: { gte: 'B' } }), many: false } } },
      model: 'comments',
    };
    const page = await app.list('posts', { find: { author: byAuthor, comments } });
    expect(page.body.total).toBe(4);
    expect(page.text).toContain('"price":1.0,"big":9007199254740993,');
    expect(page.text).toContain('"price":2.50');
    expect(page.body.records).toEqual([
      {
        id: 'p1',
        price: 1,
        big: 9007199254740992,
        note: 'a "}" \\ b',
        author: { name: 'Ada' },
        comments: [
          { id: 'c1', post: 'p1', by: null },
          { id: 'c2', post: 'p1', by: { id: 'bob', name: 'Bob', boss: null } },
        ],
      },
      { id: 'p2', price: 2.5, author: { name: 'Cyd' }, comments: [{ id: 'c3', post: 'p2', by: null }] },
      { id: 'p3', author: null, comments: [] },
      { id: 'p4', author: null, comments: [] },
    ]);
  });

  test('a select names fields; joins stay unless it leaves them out, and it may name a part of one', async () => {
    const find = { id: 'p1', author: byAuthor, boss: join({ id: 'bob' }, { many: false }) };
    const selected = async (select: unknown) => (await app.list('posts', { find, select })).body.records[0];
    expect(await selected(['price'])).toEqual({
      price: 1,
      author: { name: 'Ada' },
      boss: expect.anything() as unknown,
    });
    expect(await selected(['price', 'boss.name'])).toEqual({
      price: 1,
      author: { name: 'Ada' },
      boss: { name: 'Bob' },
    });
    expect(await selected({ author: false, big: false, note: false, price: false })).toEqual({
      id: 'p1',
      boss: { id: 'bob', name: 'Bob', boss: null },
    });
  });

  test('joins go four levels deep and may be sixteen; beyond, and what they cannot be, is 400 that says so', async () => {
    const many = (count: number) => Object.fromEntries(Array.from({ length: count }, (_, at) => [`j${at}`, nested(1)]));
    expect((await app.list('posts', { find: { one: nested(4) } })).status).toBe(200);
    expect((await app.list('posts', { find: many(16) })).status).toBe(200);
    const limit = { code: 'LIMIT_EXCEEDED' };
    expect(await refusal({ one: nested(5) })).toMatchObject([400, { ...limit, error: /4 levels/ }].map(matching));
    expect(await refusal(many(17))).toMatchObject([400, { ...limit, error: /16 joins/ }].map(matching));
    const invalid: Array<[object, RegExp]> = [
      [{ x: join({ id: '$data' }) }, /find\.x\.resolve\.find\.id .*path/],
      [{ x: join({ id: '$user.id' }) }, /\$data\.<field>/],
      [{ x: join({ id: '$data..a' }) }, /empty step/],
      [{ x: join({ name: { contains: '$data.name' } }) }, /cannot refer/],
      [{ a: '$data.b' }, /only joins have one/],
      // Each refers to what the other adds.
      [{ x: join({ id: '$data.y.id' }), y: join({ id: '$data.x.id' }) }, /refers to the join y/],
      [{ or: [{ x: join({}) }] }, /can stand only beside/],
      [{ a: { x: join({}) } }, /can stand only beside/],
      [{ 'a.b': join({}) }, /one step/],
      [{ and: [{ x: join({}) }, { x: join({}) }] }, /second join/],
      [{ x: join({}, { limit: 1 }) }, /limit is not a known member/],
      [{ x: join({}, { many: 1 }) }, /many must be/],
      [{ x: { resolve: [], model: 'people' } }, /resolve must be an object/],
      [{ x: join({}, { model: 'nowhere' }) }, /names no collection/],
      [{ x: join({}, { model: 'bad name' }) }, /must be 1 to 63/],
      [{ x: join({}, { model: 'other::people' }) }, /another app/],
      [{ x: { resolve: { find: {}, select: { a: true, b: false } }, model: 'people' } }, /resolve\.select/],
    ];
    for (const [find, error] of invalid) {
      expect(await refusal(find)).toMatchObject([400, { code: 'INVALID_QUERY', error }].map(matching));
    }
  });

  test('an array has at most 1,000 records: one more is 413 that names the join', async () => {
    const post = (at: number) => ({ id: `m${at}`, post: 'p1' });
    await app.store(
      'many',
      Array.from({ length: 1_000 }, (_, at) => post(at)),
    );
    const find = { id: 'p1', all: { resolve: { find: { post: '$data.id' }, select: ['id'] }, model: 'many' } };
    const whole = await app.list<{ all: unknown[] }>('posts', { find });
    expect(whole.body.records[0]!.all).toHaveLength(1_000);
    await app.store('many', [post(1_000)]);
    const refused = await app.list('posts', { find });
    expect(refused).toMatchObject({
      status: 413,
      body: { code: 'RESULT_TOO_LARGE', error: expect.stringContaining('join all') as string },
    });
    const explained = async () => {
      const path = `/api/apps/${app.appId}/collections/posts/explain`;
      const { body } = await app.call<{ access: { joins: unknown }; indexes_used: string[] }>('POST', path, {
        query: { find },
      });
      return [body.access.joins, body.indexes_used.includes('many_post')];
    };
    // Without an index the collection is scanned; with one it is the same.
    expect(await explained()).toEqual([[{ alias: 'all', scan: true }], false]);
    const index = { name: 'many_post', collection: 'many', field_name: 'post', index_type: 'string' };
    const made = await app.call<{ ticket_id: string }>('POST', `/api/apps/${app.appId}/indexes`, index);
    await app.ended(made.body.ticket_id);
    expect((await app.list('posts', { find })).status).toBe(413);
    expect(await explained()).toEqual([[{ alias: 'all', index: 'many_post' }], true]);
    const first = { ...find, all: { ...find.all, many: false } };
    expect((await app.list('posts', { find: first })).body.records).toMatchObject([{ all: { id: 'm0' } }]);
  });

  test('a page whose joins hold more than 32 MiB is 413', async () => {
    const large = Array.from({ length: 12 }, (_, at) => ({ id: `l${at}`, fill: 'x'.repeat(1_000_000) }));
    for (const document of large) await app.store('large', [document]);
    const find = { all: { resolve: { find: {}, select: ['id'] }, model: 'large' } };
    const refused = await app.list('posts', { find });
    expect(refused).toMatchObject({ status: 413, body: { code: 'RESULT_TOO_LARGE' } });
    expect((await app.list('posts', { find, limit: 2 })).body.records).toHaveLength(2);
  });

  test('pages with joins go on by cursor, have history, and may be those of a view', async () => {
    const find = { author: byAuthor };
    const page = await app.list('posts', { find, sort: ['-price'], limit: 1 });
    expect(page.body.records).toMatchObject([{ id: 'p2', author: { name: 'Cyd' } }]);
    const cursor = (page.body as unknown as { next_cursor: string }).next_cursor;
    const next = await app.list('posts', { find, sort: ['-price'], limit: 1, cursor });
    expect(next.body.records).toMatchObject([{ id: 'p1', author: { name: 'Ada' } }]);
    const history = await app.list('posts', { find, include_history: true, limit: 1 });
    expect(history.body.records).toMatchObject([{ id: 'p1', author: { name: 'Ada' } }]);

    const view = { name: 'by_author', query: { group_by: ['author'] }, source_collections: ['posts'] };
    const made = await app.call<{ ticket_id: string }>('POST', `/apps/${app.appId}/views`, view);
    await app.ended(made.body.ticket_id);
    const rows = [{ author: { name: 'Ada' } }, { author: { name: 'Cyd' } }, { author: null }];
    expect((await app.list('by_author', { find, sort: ['author'] })).body.records).toEqual(rows);
    // Endpoint 8 leaves soft-deleted documents out.
    const filter = encodeURIComponent(JSON.stringify(find));
    const read = await send(granary.url, 'GET', `/api/views/${app.appId}/by_author/data?sort=author&filter=${filter}`);
    expect(read.body['records']).toEqual([{ author: { name: 'Ada' } }, { author: null }, { author: null }]);
  });

  test('what is public shows no private collection by a join', async () => {
    const writer = await app.call<{ app_key: string }>('POST', `/api/apps/${app.appId}/regenerate-key`, {
      name: randomUUID(),
      permissions: ['Write'],
    });
    for (const [name, read] of [
      ['secret', 'private'],
      ['closing', 'public'],
    ] as const) {
      await app.call('POST', `/api/apps/${app.appId}/collections`, { name, access_policy: { read } });
      await app.store(name, [{ id: 'p1', text: 'hush' }]);
    }
    const find = (model: string) => ({ id: 'p1', more: join({ id: '$data.id' }, { model }) });
    const create = (name: string, model: string, policy?: string, key = app.key) =>
      send(granary.url, 'POST', `/apps/${app.appId}/queries`, {
        key,
        body: {
          name,
          source_collection: 'posts',
          base_query: { find: find(model), select: ['id'] },
          ...(policy && { access_policy: { read: policy } }),
        },
      });
    const run = (name: string, key?: string) =>
      send(granary.url, 'GET', `/api/queries/${app.appId}/${name}/data`, { key });

    expect((await create('inherits', 'secret')).body).toMatchObject({ access_policy: { read: 'private' } });
    expect((await run('inherits')).status).toBe(401);
    expect((await run('inherits', app.key)).body).toMatchObject({ records: [{ more: [{ text: 'hush' }] }] });
    expect((await create('leak', 'secret', 'public', writer.body.app_key)).status).toBe(403);
    expect((await create('shown', 'secret', 'public')).body).toMatchObject({ access_policy: { read: 'public' } });
    expect((await run('shown')).body).toMatchObject({ records: [{ more: [{ text: 'hush' }] }] });
    expect((await create('unknown', 'nowhere')).body).toMatchObject({ code: 'INVALID_QUERY' });

    expect((await create('closes', 'closing', 'public', writer.body.app_key)).status).toBe(201);
    expect((await run('closes')).status).toBe(200);
    await app.call('PUT', `/api/apps/${app.appId}/collections/closing`, { access_policy: { read: 'private' } });
    expect((await run('closes')).status).toBe(401);
    const inUse = await app.call('DELETE', `/api/apps/${app.appId}/collections/closing`, { force: true });
    expect(inUse).toMatchObject({ status: 409, body: { code: 'COLLECTION_IN_USE' } });

    const view = { name: 'of_posts', query: {}, source_collections: ['posts'] };
    const made = await app.call<{ ticket_id: string }>('POST', `/apps/${app.appId}/views`, view);
    await app.ended(made.body.ticket_id);
    const path = `/api/views/${app.appId}/of_posts/data?filter=${encodeURIComponent(JSON.stringify(find('secret')))}`;
    expect((await send(granary.url, 'GET', path)).status).toBe(401);
    expect((await send(granary.url, 'GET', path, { key: app.key })).body).toMatchObject({
      records: [{ more: [{ text: 'hush' }] }],
    });
  });
});

const matching = (value: unknown): unknown => {
  if (typeof value !== 'object' || value === null) return value;
  const { error, ...others } = value as { error: RegExp };
  return { ...others, error: expect.stringMatching(error) as string };
};
