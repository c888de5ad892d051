import { routes } from '@granary/gateway/routes/table';
import type { Route } from '@granary/gateway/pipeline/route';
import { version } from '@granary/shared/version';
import { eventually } from '@granary/shared/testing/eventually';
import { newApp, operatorKey, send, startGranary, transports, type Body, type Granary, type TestApp } from './granary';
import { newWallet, signedHeaders } from './wallet-signing';

const time = expect.stringMatching(/^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z$/) as string;
const text = expect.stringMatching(/\S/) as string;
const count = expect.any(Number) as number;

describe.each(transports)('the documented endpoints (%s)', (transport) => {
  let granary: Granary;
  let app: TestApp;
  /** Of the app, under the documented prefix. */
  let path: string;
  beforeAll(async () => {
    granary = await startGranary(transport);
  });
  afterAll(() => granary.stop());
  beforeEach(async () => {
    app = await newApp(granary);
    path = `/api/apps/${app.appId}`;
  });
  const open = <T = Record<string, unknown>>(target: string) => send<T>(granary.url, 'GET', target);
  const asOperator = (method: string, target: string, body?: object) =>
    send(granary.url, method, target, { body, headers: { 'x-operator-key': operatorKey } });

  describe('applications', () => {
    test('an application is created with a first key for everything except Pay, and can be listed, read and deleted', async () => {
      const body = { name: 'Films', description: 'All of them', owner_address: newWallet().address };
      const made = await asOperator('POST', '/api/applications', body);
      expect(made.status).toBe(201);
      const application = {
        app_id: expect.stringMatching(/^(?!app_)[A-Za-z0-9][A-Za-z0-9_-]{0,62}$/) as string,
        ...body,
        created_at: time,
        updated_at: time,
        height: 0,
      };
      expect(made.body).toEqual({
        ...application,
        app_key: expect.stringMatching(/^app_[A-Za-z0-9_-]{30,}$/) as string,
        key_id: text,
        permissions: expect.arrayContaining(['Admin', 'Read', 'Write']) as string[],
      });
      expect(made.body['permissions']).toHaveLength(3);
      const appId = made.body['app_id'] as string;
      const key = made.body['app_key'] as string;
      expect((await send(granary.url, 'GET', `/api/applications/${appId}`, { key })).body).toEqual(application);

      const listed = await asOperator('GET', '/api/applications?limit=10000');
      expect(listed.body).toEqual({
        applications: expect.arrayContaining([{ ...application, app_id: appId }]) as object[],
        total: count,
        limit: 10_000,
        offset: 0,
      });
      const page = await asOperator('GET', '/applications?limit=1&offset=1');
      expect(page.body).toMatchObject({ limit: 1, offset: 1, total: listed.body['total'] });
      expect(page.body['applications']).toHaveLength(1);

      const gone = await asOperator('DELETE', `/api/applications/${appId}`);
      expect(gone).toMatchObject({ status: 200, body: { success: true, message: text } });
      expect((await open(`/api/applications/${appId}`)).body).toMatchObject({ code: 'APP_NOT_FOUND' });
    });

    test('an application created twice with one Idempotency-Key is one, and its secret is shown once', async () => {
      const headers = { 'x-operator-key': operatorKey, 'idempotency-key': `k-${app.appId}` };
      const make = (name: string) => send(granary.url, 'POST', '/api/applications', { headers, body: { name } });
      const [first, again] = [await make('one'), await make('one')];
      expect([first.status, again.status]).toEqual([201, 201]);
      expect(first.body['app_key']).toMatch(/^app_/);
      expect(again.body).toEqual({ ...first.body, app_key: null });
      expect(await make('two')).toMatchObject({ status: 422, body: { code: 'IDEMPOTENCY_KEY_REUSED' } });
    });

    test('the statistics of an application count its collections, documents and bytes', async () => {
      await app.store('a', [{ id: '1' }, { id: '2' }]);
      await app.store('b', [{ id: '1' }]);
      expect(await app.call('GET', `${path}/stats`)).toMatchObject({
        status: 200,
        body: { app_id: app.appId, collection_count: 2, document_count: 3, size_bytes: 30, height: 2 },
      });
      expect((await app.call('GET', `${path}/health`)).body).toEqual({
        status: 'ok',
        version,
        features: expect.arrayContaining(['documents', 'views', 'blobs']) as string[],
      });
    });
  });

  describe('collections', () => {
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
      });
      const one = await app.call('GET', `${path}/collections/films`);
      expect(one.body).toMatchObject({ document_count: 2, size_bytes: 61 });
    });

    test('validate reports whether documents are valid, and stores none', async () => {
      await app.call('POST', `${path}/collections`, definition);
      const validate = (data: unknown) => app.call('POST', `${path}/collections/films/validate`, { data });
      expect(await validate([{ title: 'Heat', year: 1995 }])).toMatchObject({ status: 200, body: { valid: true } });
      expect(await validate([{ title: 'Heat' }, { year: 1700 }])).toMatchObject({
        status: 200,
        body: {
          valid: false,
          errors: { 'data[1].title': ['is required and missing'], 'data[1].year': ['must be at least 1888'] },
        },
      });
      for (const bad of [
        '[{"a":1,"a":2}]',
        '[{"title":"\\u0000"}]',
        '[{"title":"x","n":1e999}]',
        '[{"__proto__":1}]',
      ]) {
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

  describe('documents of a collection, by URL', () => {
    const data = () => `${path}/collections/people/data`;
    const ids = async (query: string) => {
      const answer = await open<{ records: Array<{ id: string }> }>(`${data()}?${query}`);
      if (answer.status !== 200) return `${answer.status} ${answer.text}`;
      return answer.body.records.map(({ id }) => id).join('');
    };
    beforeEach(async () => {
      for (const [field_name, index_type] of [
        ['age', 'number'],
        ['active', 'boolean'],
        ['name', 'string'],
        ['born', 'date'],
        ['any', 'btree'],
        ['address.city', 'string'],
        ['limit', 'number'],
      ] as const) {
        const index = { name: `i_${field_name}`, collection: 'people', field_name, index_type };
        expect((await app.call('POST', `${path}/indexes`, index)).status).toBe(201);
      }
      await app.store('people', [
        { id: 'a', age: 30, active: true, name: '30', born: '2000-01-01T00:00:00Z', any: 1, address: { city: 'Ulm' } },
        { id: 'b', age: 30.0, active: false, name: 'Bo', born: '1999-12-31T22:00:00-02:00', any: '1', limit: 5 },
        { id: 'c', age: '30', active: 'true', name: 'Ça va & mehr', any: null, address: { city: 'Bonn' } },
        { id: 'd', age: 4, name: 'Di', any: true, extra: { deep: [1, 2] } },
        { id: 'e', age: 30, deleted: true },
      ]);
    });

    test('documents are filtered by indexed fields, each typed by its index', async () => {
      expect(await ids('age=30&sort=id')).toBe('ab');
      expect(await ids('age=3e1&sort=id')).toBe('ab');
      expect(await ids('active=true')).toBe('a');
      expect(await ids('active=false')).toBe('b');
      expect(await ids('name=30')).toBe('a');
      expect(await ids(`name=${encodeURIComponent('Ça va & mehr')}`)).toBe('c');
      expect(await ids('born=2000-01-01T00:00:00Z&sort=id')).toBe('ab');
      expect(await ids('any=1&sort=id')).toBe('ab');
      expect(await ids('any=true')).toBe('d');
      expect(await ids('address.city=Ulm')).toBe('a');
      expect(await ids('id=d')).toBe('d');
      expect(await ids('age=30&active=true')).toBe('a');
      expect(await ids('age=31')).toBe('');
    });

    test('documents are filtered by operators, which also address fields of reserved names', async () => {
      expect(await ids('age.$gte=4&age.$lt=30')).toBe('d');
      expect(await ids('age.$in=4,31')).toBe('d');
      expect(await ids('age.$between=4,30&sort=id')).toBe('abd');
      expect(await ids('name.$ne=Bo&sort=id')).toBe('acd');
      expect(await ids('active.$exists=false')).toBe('d');
      expect(await ids('limit.$eq=5')).toBe('b');
    });

    test('documents come in pages, sorted and selected, without deleted ones', async () => {
      const all = await open(data());
      expect(Object.keys(all.body)).toEqual(['records', 'total', 'page', 'limit']);
      expect(all.body).toMatchObject({ total: 4, page: 1, limit: 100 });
      const page = await open(`${data()}?sort=-age,id&limit=2&offset=2&select=id,address.city`);
      expect(page.body).toMatchObject({ total: 4, page: 2, limit: 2 });
      expect(await ids('sort=-id&limit=3')).toBe('dcb');
      expect((await open(`${data()}?id=a&select=age,address.city`)).body['records']).toEqual([
        { age: 30, address: { city: 'Ulm' } },
      ]);
      expect((await open(`${data()}?limit=1&age=30&count=none`)).body).toMatchObject({ total: null });
      expect((await open(`${data()}?limit=1&age=30&count=exact`)).body).toMatchObject({ total: 2 });
      expect((await open(`${data()}?limit=9&age=30&count=none`)).body).toMatchObject({ total: 2 });
    });

    test('a filter on another field is refused with a list of the indexed fields', async () => {
      const refused = await open<{ details: Record<string, string[]> }>(`${data()}?extra.deep=1`);
      expect(refused).toMatchObject({ status: 400, body: { code: 'FIELD_NOT_INDEXED' } });
      const listed = Object.values(refused.body.details).flat();
      expect(listed).toEqual(expect.arrayContaining(['id', 'age', 'active', 'name', 'born', 'any', 'address.city']));
    });
  });

  test('ids and values of any characters are stored, found and distinguished', async () => {
    const ids = [
      'a/b',
      "o'clock",
      '"',
      '\\',
      '%',
      '_',
      ' ',
      '\t',
      'é',
      'e\u0301',
      '😀',
      'É',
      '\u2028',
      '$1',
      '0',
      '-1',
      '{}',
      'null',
    ];
    await app.store(
      'odd',
      ids.map((id) => ({ id, text: `<${id}>` })),
    );
    for (const id of ids) {
      const found = await open<{ records: object[]; total: number }>(
        `${path}/collections/odd/data?id=${encodeURIComponent(id)}`,
      );
      expect(found.body).toMatchObject({ records: [{ id, text: `<${id}>` }], total: 1 });
      for (const find of [
        { text: `<${id}>` },
        { text: { contains: id }, id: { in: [id] } },
        { id: { startsWith: id, endsWith: id } },
      ]) {
        const { records } = (await app.list('odd', { find })).body;
        expect(records.filter((record) => record['id'] === id)).toHaveLength(1);
      }
    }
    expect((await app.list('odd', { find: { text: { startsWith: '<%' } } })).body.total).toBe(1);
  });

  test('a list accepts a filter, a selection, an order and a page, and the name of a view', async () => {
    await app.store('films', [
      { id: 'a', title: 'Alien', year: 1979, cast: { lead: 'Weaver', size: 7 } },
      { id: 'b', title: 'Heat', year: 1995, cast: { lead: 'Pacino', size: 30 } },
      { id: 'c', title: 'Speed', year: 1994 },
    ]);
    const first = await app.list('films', {
      find: { or: [{ year: { greaterThan: 1990 } }, { cast: { lead: 'Weaver' } }], not: [{ title: 'Speed' }] },
      select: { title: true, 'cast.lead': true },
      sort: ['-year'],
      limit: 1,
    });
    expect(first.body).toEqual({
      records: [{ title: 'Heat', cast: { lead: 'Pacino' } }],
      total: 2,
      page: 1,
      limit: 1,
      next_cursor: expect.stringMatching(/^[\w-]+$/) as string,
    });
    const second = await app.list('films', { sortBy: 'year', sortDirection: 'descending', limit: 2, offset: 2 });
    expect(second.body).toMatchObject({ records: [{ id: 'a' }], total: 3, page: 2, limit: 2 });
    const made = await app.call<{ ticket_id: string }>('POST', `${path}/views`, {
      name: 'new_films',
      query: { find: { year: { gte: 1990 } }, select: ['title'] },
      source_collections: ['films'],
    });
    await app.ended(made.body.ticket_id);
    const view = await app.list('new_films', { sort: ['title'] });
    expect(view.body).toEqual({ records: [{ title: 'Heat' }, { title: 'Speed' }], total: 2, page: 1, limit: 100 });
  });

  test('the tasks of a write and of long work have the documented fields', async () => {
    const { ticket_id: write } = (await app.store('films', [{ id: 'a' }])).body;
    const task = await open(`/api/tasks/${write}`);
    expect(task.body).toEqual({
      ticket_id: write,
      status: 'Completed',
      operation_type: text,
      app_id: app.appId,
      created_at: time,
      updated_at: time,
      transaction_hash: expect.stringMatching(/^[0-9a-f]{64}$/) as string,
      block_height: 1,
      result: { results: [{ id: 'a', celestia_height: 1, blob_id: text, namespace: `${app.appId}::films` }] },
      progress: 1,
      progress_log: expect.any(Array) as string[],
    });
    const view = { name: 'v', query: {}, source_collections: ['films'] };
    const { ticket_id: job } = (await app.call<{ ticket_id: string }>('POST', `${path}/views`, view)).body;
    const ended = await app.ended(job);
    expect(ended).toEqual({
      ticket_id: job,
      status: 'Completed',
      operation_type: text,
      app_id: app.appId,
      created_at: time,
      updated_at: time,
      result: expect.any(Object) as object,
      progress: 1,
      progress_log: expect.any(Array) as string[],
    });
    await granary.restart();
    expect((await open(`/api/tasks/${job}`)).body).toEqual(ended);
    expect((await open(`/tasks/${write}`)).body).toEqual(task.body);
  });

  test('the skills document describes the app, is always current, and contains the part of the owner', async () => {
    const skills = () => open(`/api/skills/${app.appId}/skills.md`);
    const first = await skills();
    expect(first.status).toBe(200);
    expect(first.headers.get('content-type')).toBe('text/markdown; charset=utf-8');
    expect(first.text).toContain(app.appId);
    await app.call('POST', `${path}/indexes`, {
      name: 'i',
      collection: 'films',
      field_name: 'year',
      index_type: 'number',
    });
    expect((await skills()).text).toMatch(/films[\s\S]*year/);
    await app.call('POST', `${path}/queries`, { name: 'by_title', source_collection: 'films', base_query: {} });
    expect((await skills()).text).toContain('by_title');
    const put = (body: string, type: string) =>
      app.call('PUT', `/api/skills/${app.appId}/skills.md`, body, { 'content-type': type });
    expect(await put('# Ours\n\nSchön.', 'text/markdown; charset=utf-8')).toMatchObject({
      status: 200,
      body: { success: true, message: text, app_id: app.appId, revision: count },
    });
    expect((await skills()).text).toMatch(
      /# Ours\n\nSchön\.[\s\S]*<!-- .*begin.* -->[\s\S]*by_title[\s\S]*<!-- .*end.* -->/,
    );
    const forged = '# New <!-- granary:generated:end --> part';
    expect((await put(JSON.stringify({ markdown: forged }), 'application/json')).status).toBe(200);
    const last = (await skills()).text;
    expect(last).toContain('# New');
    expect(last).not.toContain('# Ours');
    expect(last.match(/granary:generated:end/g)).toHaveLength(1);
  });

  test('health lists six services and their parts, and no internal details', async () => {
    const health = await eventually(async () => {
      const answer = await open<{ status: string; checks: Record<string, Record<string, unknown>> }>('/health');
      return answer.body.status === 'healthy' && answer;
    });
    expect(health.status).toBe(200);
    expect(Object.keys(health.body).sort()).toEqual(['checks', 'status', 'version']);
    expect(Object.keys(health.body.checks).sort()).toEqual(
      ['blobs', 'data', 'finance', 'gateway', 'payments', 'tasks'].sort(),
    );
    for (const [service, check] of Object.entries(health.body.checks)) {
      expect(check).toMatchObject({ status: 'healthy', latency_ms: count, version });
      if (service === 'gateway') continue;
      expect(check['database']).toEqual({ status: 'healthy', latency_ms: count });
    }
    expect(health.text).not.toMatch(/127\.0\.0\.1|localhost|postgres:|password|:\/\//);
    const links = { docs: '/docs', openapi: '/openapi.json' };
    expect((await open('/')).body).toEqual({ status: 'ok', version, name: 'granary', links });
    expect((await open('/readyz')).status).toBe(200);
    expect((await open('/livez')).status).toBe(200);
    expect((await open('/openapi.json')).body).toMatchObject({ openapi: expect.stringMatching(/^3\.1/) as string });
  });

  test('the lists of authorised transactions are empty', async () => {
    const byApp = await app.call('GET', `/api/authz/transactions/app/${app.appId}?limit=3`);
    expect(byApp).toMatchObject({ status: 200 });
    expect(byApp.body).toEqual({ app_id: app.appId, transactions: [], total: 0, limit: 3, offset: 0 });
    const wallet = newWallet();
    const target = `/api/authz/transactions/${wallet.address}`;
    const byUser = await send(granary.url, 'GET', target, { headers: signedHeaders(wallet, target) });
    expect(byUser.body).toEqual({ user_address: wallet.address, transactions: [], total: 0, limit: 100, offset: 0 });
    expect((await asOperator('GET', '/api/authz/transactions/app/nobody-has-this')).status).toBe(404);
  });

  test('every answer has the fields of the published document, and no others', async () => {
    await app.store('films', [{ id: 'a', year: 1994 }]);
    const bodies: Record<string, [body: Body, headers?: Record<string, string>]> = {
      createIndex: [{ name: 'i', collection: 'films', field_name: 'year', index_type: 'number' }],
      createView: [{ name: 'v', query: {}, source_collections: ['films'] }],
      createQuery: [{ name: 'q', source_collection: 'films', base_query: {} }],
      createCollection: [{ name: 'fresh' }],
      updateCollection: [{ namespace: 'x' }],
      setRetention: [{ retention_days: 30 }],
      validateDocuments: [{ data: [{}] }],
      store: [{ root: `${app.appId}::films`, data: [{ id: 'b' }] }],
      list: [{ root: `${app.appId}::films` }],
      uploadBlob: ['bytes', { 'content-type': 'image/png' }],
      regenerateKey: [{ name: 'k', permissions: ['Read'] }],
      updatePayoutSettings: [{ min_payout: 1 }],
      putSkills: [{ markdown: '# Ours' }],
      createApplication: [{ name: 'x' }],
    };
    const names: Record<string, string> = { app_id: app.appId, collection: 'films' };
    names['view_name'] = 'v';
    names['query_name'] = 'q';
    names['index_name'] = 'i';
    const deletions = (route: Route) => (route.method === 'DELETE' ? (route.path.includes('{index_name}') ? 2 : 3) : 1);
    const makers = (route: Route) => (route.method === 'POST' && route.id in bodies ? 0 : deletions(route));
    const checked: string[] = [];
    // What is made comes before what is read, and that before what is deleted, the application at the very end.
    for (const route of [...routes].sort((a, b) => makers(a) - makers(b) || b.path.length - a.path.length)) {
      const target = route.prefixes[0]! + route.path.replace(/\{(\w+)\}/g, (_, name: string) => names[name] ?? 'none');
      const [body, headers] = bodies[route.id] ?? [];
      const answer = await app.call<Record<string, unknown>>(route.method, target, body, {
        ...headers,
        ...(route.auth.kind === 'operator' || route.auth.kind === 'wallet' ? { 'x-operator-key': operatorKey } : {}),
      });
      if (answer.status >= 400) continue;
      expect(Object.keys(route.responses)).toContain(String(answer.status));
      for (const ticket of ['ticket_id', 'blob_id', 'key_id'] as const) {
        if (typeof answer.body[ticket] === 'string') names[ticket] = answer.body[ticket];
      }
      if (route.id === 'createView') await app.ended(answer.body['ticket_id'] as string);
      const schema = route.responses[answer.status]!.schema;
      if (!schema || !answer.headers.get('content-type')!.startsWith('application/json')) continue;
      checked.push(route.id);
      expect([route.id, schema.safeParse(answer.body)]).toEqual([route.id, { success: true, data: answer.body }]);
    }
    expect(checked).toEqual(expect.arrayContaining(Object.keys(bodies)));
    expect(checked.length).toBeGreaterThan(45);
  });

  test('exactly the listed routes answer 501', async () => {
    const later = [
      'GET /apps/{app_id}/indexes/encrypted-quote',
      'POST /x402/verify',
      'POST /x402/settle',
      'GET /x402/supported',
      'POST /query/sql',
      'POST /apps/{app_id}/views/sql',
      'POST /pricing/quote',
      'POST /apps/{app_id}/payout/trigger',
      'PATCH /apps/{app_id}/collections/{collection}/sharding',
      'POST /apps/{app_id}/collections/{collection}/explain',
      'GET /apps/{app_id}/collections/{collection}/documents/{document_id}',
      'PUT /apps/{app_id}/collections/{collection}/documents/{document_id}',
      'PATCH /apps/{app_id}/collections/{collection}/documents/{document_id}',
      'DELETE /apps/{app_id}/collections/{collection}/documents/{document_id}',
      'GET /apps/{app_id}/commits',
      'GET /apps/{app_id}/commits/{height}/proof',
      'POST /apps/{app_id}/batch',
      'POST /apps/{app_id}/relations',
    ].sort();
    await app.store('films', [{ id: 'a' }]);
    const found: string[] = [];
    for (const route of routes) {
      const answer = await app.call<{ code: string }>(route.method, fill(route, app.appId), bodyOf(route));
      expect(answer.status).not.toBe(500);
      if (answer.status !== 501) continue;
      expect(answer.body.code).toBe('NOT_IMPLEMENTED');
      found.push(`${route.method} ${route.path}`);
    }
    expect(found.sort()).toEqual(later);
  });

  test('parts of endpoints that are not implemented answer 501', async () => {
    await app.store('films', [{ id: 'a' }]);
    const root = `${app.appId}::films`;
    const view = { name: 'v', query: {}, source_collections: ['films'] };
    const index = { name: 'i', collection: 'films', field_name: 'a', index_type: 'btree' };
    const calls: Array<[string, string, object]> = [
      ['POST', `${path}/views`, { ...view, refresh_mode: 'live' }],
      ['POST', `${path}/views`, { ...view, query: { join: { x: { on: { a: '$data.b' } } } } }],
      ...['hash', 'fulltext', 'price', 'Encrypted'].map((index_type): [string, string, object] => [
        'POST',
        `${path}/indexes`,
        { ...index, index_type },
      ]),
      ['POST', '/list', { root, find: { x: { resolve: { find: {} }, model: 'films' } } }],
      ...['regExpMatches', '$regex', 'CIDR', 'isLocalIp', 'inCountry', '$search'].map(
        (operator): [string, string, object] => ['POST', '/list', { root, find: { a: { [operator]: 'x' } } }],
      ),
    ];
    for (const [method, target, body] of calls) {
      const answer = await app.call(method, target, body);
      expect([JSON.stringify(body), answer.status, answer.body['code']]).toEqual([
        JSON.stringify(body),
        501,
        'NOT_IMPLEMENTED',
      ]);
    }
  });
});

const fill = (route: Route, appId: string): string =>
  route.prefixes[0]! +
  route.path.replace(/\{(\w+)\}/g, (_, name: string) =>
    name === 'app_id' ? appId : name === 'collection' ? 'films' : name === 'height' ? '1' : 'none',
  );

const bodyOf = (route: Route): object | undefined =>
  route.method === 'GET' || route.method === 'DELETE' ? undefined : {};
