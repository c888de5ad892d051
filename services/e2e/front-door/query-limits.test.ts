import { borrowGranary, newApp, send, transports, type Granary, type TestApp } from '../support/granary';

const expressions = (count: number, from = 0) =>
  Array.from({ length: count }, (_, at) => ({ text: { regExpMatches: `^${from + at}` } }));

describe.each(transports)('limits of a query (%s)', (transport) => {
  let granary: Granary;
  let app: TestApp;
  beforeAll(async () => {
    granary = await borrowGranary(transport);
    app = await newApp(granary);
    await app.store('notes', [{ id: 'a', text: '1' }]);
    await app.call('POST', `/api/apps/${app.appId}/indexes`, {
      name: 'by_text',
      collection: 'notes',
      field_name: 'text',
      index_type: 'string',
    });
  });
  afterAll(() => granary.stop());

  const join = (find: object) => ({ resolve: { find }, model: 'notes' });
  const limited = { status: 400, body: { code: 'LIMIT_EXCEEDED' } };

  test('regular expressions and conditions of nested joins count together', async () => {
    const find = (count: number) => ({
      or: expressions(8),
      one: join({ or: expressions(4, 8), two: join({ or: expressions(count, 12) }) }),
    });
    expect((await app.list('notes', { find: find(4) })).status).toBe(200);
    expect(await app.list('notes', { find: find(5) })).toMatchObject(limited);
    const many = (count: number) => ({ or: Array.from({ length: count }, (_, at) => ({ n: at })) });
    const nested = (count: number) => ({ ...many(100), one: join({ ...many(100), two: join(many(count)) }) });
    expect((await app.list('notes', { find: nested(56) })).status).toBe(200);
    expect(await app.list('notes', { find: nested(57) })).toMatchObject(limited);
  });

  test('those of a predefined query count with its parameters', async () => {
    const create = (name: string, find: object) =>
      app.call('POST', `/apps/${app.appId}/queries`, {
        name,
        source_collection: 'notes',
        base_query: { find },
        parameters: [{ name: 'match', field_path: 'text.$regex' }],
      });
    const run = (name: string, query: string) =>
      send(granary.url, 'GET', `/api/queries/${app.appId}/${name}/data${query}`);
    expect((await create('matching', { or: expressions(8), one: join({ or: expressions(8, 8) }) })).status).toBe(201);
    expect(await run('matching', '')).toMatchObject({ status: 200 });
    expect(await run('matching', '?match=x')).toMatchObject(limited);
    const find = { or: Array.from({ length: 256 }, (_, at) => ({ n: at })) };
    expect((await create('large', find)).status).toBe(201);
    expect(await run('large', '')).toMatchObject({ status: 200 });
    expect(await run('large', '?match=x')).toMatchObject(limited);
  });
});
