import { borrowGranary, newApp, send, transports, type Granary, type TestApp } from '../support/granary';

const time = expect.stringMatching(/^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z$/) as string;
const text = expect.stringMatching(/\S/) as string;

describe.each(transports)('collections (%s)', (transport) => {
  let granary: Granary;
  let app: TestApp;
  /** Of the app, under the documented prefix. */
  let path: string;
  beforeAll(async () => {
    granary = await borrowGranary(transport);
  });
  afterAll(() => granary.stop());
  beforeEach(async () => {
    app = await newApp(granary);
    path = `/api/apps/${app.appId}`;
  });
  const open = <T = Record<string, unknown>>(target: string) => send<T>(granary.url, 'GET', target);

  const schema = {
    fields: {
      title: { type: 'string', required: true },
      year: { type: 'number', index: true, validation: { min: 1888 } },
      code: { type: 'string', unique: true },
    },
  };
  const definition = {
    name: 'films',
    namespace: 'movies',
    primary_column: 'title',
    sort_column: 'year',
    schema_definition: schema,
    access_policy: { read: 'private' },
  };
  const shown = (appId: string) => ({
    app_id: appId,
    ...definition,
    retention_days: null,
    document_count: 0,
    size_bytes: 0,
    created_at: time,
    updated_at: time,
  });

  test('a collection is created with the given properties, and with defaults for the others', async () => {
    const made = await app.call('POST', `${path}/collections`, definition);
    expect(made).toMatchObject({ status: 201 });
    expect(made.body).toEqual(shown(app.appId));
    const plain = await app.call('POST', `${path}/collections`, { name: 'plain' });
    expect(plain.body).toEqual({
      ...shown(app.appId),
      name: 'plain',
      namespace: null,
      primary_column: null,
      sort_column: null,
      schema_definition: null,
      access_policy: { read: 'public' },
    });
    const again = await app.call<{ error: string }>('POST', `${path}/collections`, definition);
    expect(again).toMatchObject({ status: 409, body: { code: 'ALREADY_EXISTS' } });
    expect(again.body.error).toContain('already exists');
  });

  test('collections are read one by one, as a bare array and as the documented object, under both prefixes', async () => {
    await app.call('POST', `${path}/collections`, definition);
    await app.store('actors', [{ id: 'a' }]);
    const one = await app.call('GET', `${path}/collections/films`);
    expect(one.body).toEqual(shown(app.appId));
    const listed = await app.call<Array<Record<string, unknown>>>('GET', `${path}/collections`);
    expect(listed.status).toBe(200);
    expect(listed.body.map(({ name }) => name)).toEqual(['actors', 'films']);
    expect(listed.body[1]).toEqual(one.body);
    expect(listed.body[0]).toMatchObject({ document_count: 1, size_bytes: 10, access_policy: { read: 'public' } });
    for (const prefix of ['', '/api']) {
      const other = await app.call('GET', `${prefix}/apps/${app.appId}/api_collections`);
      expect(other).toMatchObject({ status: 200, body: { app_id: app.appId, collections: listed.body } });
    }
  });

  test('an update changes only the given properties of a collection, and can remove its schema', async () => {
    await app.call('POST', `${path}/collections`, definition);
    const changed = await app.call('PUT', `${path}/collections/films`, {
      namespace: 'cinema',
      access_policy: { read: 'public' },
    });
    expect(changed.status).toBe(200);
    expect(changed.body).toEqual({
      ...shown(app.appId),
      namespace: 'cinema',
      access_policy: { read: 'public' },
    });
    const freed = await app.call('PUT', `${path}/collections/films`, { schema_definition: null });
    expect(freed).toMatchObject({ status: 200, body: { schema_definition: null, namespace: 'cinema' } });
    expect((await app.call('GET', `${path}/collections/films`)).body).toEqual(freed.body);
  });

  test('a relaxed schema applies to the very next write', async () => {
    await app.call('POST', `${path}/collections`, definition);
    const refused = await app.call('POST', '/store', { root: `${app.appId}::films`, data: [{ id: 'a' }] });
    expect(refused.status).toBe(422);
    await app.call('PUT', `${path}/collections/films`, { schema_definition: { fields: {} } });
    await app.store('films', [{ id: 'a' }]);
  });

  test('a new schema applies to later writes, and creates its indexes', async () => {
    await app.store('films', [
      { id: 'a', year: 'once' },
      { id: 'b', year: 1994 },
    ]);
    const changed = await app.call('PUT', `${path}/collections/films`, {
      schema_definition: { fields: { year: { type: 'number', index: true } } },
      force: true,
    });
    expect(changed.status).toBe(200);
    expect((await open(`${path}/collections/films/data?year=1994`)).body).toMatchObject({ total: 1 });
    const refused = await app.call('POST', '/store', { root: `${app.appId}::films`, data: [{ year: 'x' }] });
    expect(refused).toMatchObject({ status: 422, body: { details: { 'data[0].year': ['must be of type number'] } } });
    const indexes = await app.call('GET', `${path}/collections/films/indexes`);
    expect(indexes.body).toMatchObject([{ name: 'films_year_idx', field_name: 'year', status: 'ready' }]);
  });

  test('the statistics of a collection count documents, versions and bytes', async () => {
    await app.store('films', [{ id: 'a' }, { id: 'b' }]);
    await app.store('films', [
      { id: 'b', v: 2 },
      { id: 'c', deleted: true },
    ]);
    expect((await app.call('GET', `${path}/collections/films/stats`)).body).toEqual({
      app_id: app.appId,
      collection: 'films',
      document_count: 2,
      deleted_count: 1,
      version_count: 4,
      size_bytes: 10 + 10 + 16 + 25,
      index_count: 0,
      last_write_at: time,
      storage_size: 61,
      avg_document_size: 31,
      created_at: time,
      updated_at: time,
    });
    const one = await app.call('GET', `${path}/collections/films`);
    expect(one.body).toMatchObject({ document_count: 2, size_bytes: 61 });
  });

  test('validate reports whether documents are valid, and stores none', async () => {
    await app.call('POST', `${path}/collections`, definition);
    const validate = (data: unknown) => app.call('POST', `${path}/collections/films/validate`, { data });
    for (const data of [[{ title: 'Heat', year: 1995 }], { title: 'Heat', year: 1995 }]) {
      expect(await validate(data)).toMatchObject({ status: 200, body: { valid: true, errors: [], details: {} } });
    }
    expect(await validate({ title: 'Heat', year: 1700 })).toMatchObject({ status: 200, body: { valid: false } });
    expect(await validate([{ title: 'Heat' }, { year: 1700 }])).toMatchObject({
      status: 200,
      body: {
        valid: false,
        errors: ['data[1].title is required and missing', 'data[1].year must be at least 1888'],
        details: { 'data[1].title': ['is required and missing'], 'data[1].year': ['must be at least 1888'] },
      },
    });
    for (const bad of ['[{"a":1,"a":2}]', '[{"title":"\\u0000"}]', '[{"title":"x","n":1e999}]', '[{"__proto__":1}]']) {
      const said = await app.call('POST', `${path}/collections/films/validate`, `{"data":${bad}}`);
      expect(said).toMatchObject({ status: 200, body: { valid: false } });
    }
    expect((await app.call('GET', `${path}/collections/films/stats`)).body).toMatchObject({ version_count: 0 });
  });

  test('a collection shows the retention that was set, and null removes it', async () => {
    await app.store('films', [{ id: 'a' }]);
    const set = (days: number | null) =>
      app.call('POST', `${path}/collections/films/retention`, { retention_days: days });
    expect(await set(7)).toMatchObject({ status: 200, body: { name: 'films', retention_days: 7 } });
    expect((await app.call('GET', `${path}/collections/films`)).body).toMatchObject({ retention_days: 7 });
    expect(await set(null)).toMatchObject({ status: 200, body: { retention_days: null } });
  });

  test('a collection is deleted when empty or by force, and with cascade if views read it', async () => {
    await app.call('POST', `${path}/collections`, { name: 'empty' });
    const gone = await app.call('DELETE', `${path}/collections/empty`);
    expect(gone).toMatchObject({ status: 200, body: { success: true, message: text } });
    expect((await app.call('GET', `${path}/collections/empty`)).body).toMatchObject({ code: 'COLLECTION_NOT_FOUND' });
    await app.store('films', [{ id: 'a' }]);
    const view = { name: 'v', query: {}, source_collections: ['films'] };
    const made = await app.call<{ ticket_id: string }>('POST', `${path}/views`, view);
    await app.ended(made.body.ticket_id);
    const refused = await app.call('DELETE', `${path}/collections/films`, { force: true });
    expect(refused).toMatchObject({ status: 409, body: { code: 'COLLECTION_IN_USE' } });
    const cascaded = await app.call('DELETE', `${path}/collections/films`, { force: true, cascade: true });
    expect(cascaded.status).toBe(200);
    expect((await open(`/api/views/${app.appId}/v/data`)).body).toMatchObject({ code: 'VIEW_NOT_FOUND' });
  });
});
