import { randomUUID } from 'node:crypto';
import { Client } from 'pg';
import { eventually } from '@granary/testing/eventually';
import { expectChain } from './hash-chain';
import {
  borrowGranary,
  newApp,
  send,
  transports,
  type Granary,
  type StoreAnswer,
  type TestApp,
} from '../support/granary';

describe.each(transports)('documents (%s)', (transport) => {
  let granary: Granary;
  let app: TestApp;
  beforeAll(async () => {
    granary = await borrowGranary(transport);
  });
  afterAll(() => granary.stop());
  beforeEach(async () => {
    app = await newApp(granary);
  });

  test('a stored document is returned byte for byte, with its id and position in the chain', async () => {
    const body = `{"root":"${app.appId}::films","data":[{"id":"a", "n":1.50,"big":12345678901234567890.10,"e":1e2, "u":"\\u00e4"},{"id":7,"ok":true}]}`;
    const stored = await app.call<StoreAnswer>('POST', '/store', body);
    expect(stored.status).toBe(202);
    expect(stored.body.status).toBe('Completed');
    expect(stored.body.results).toEqual([
      {
        id: 'a',
        celestia_height: 1,
        blob_id: expect.stringMatching(/^[0-9a-f]{64}$/) as string,
        namespace: `${app.appId}::films`,
      },
      { id: '7', celestia_height: 1, blob_id: stored.body.results[0]!.blob_id, namespace: `${app.appId}::films` },
    ]);
    const listed = await app.list('films', { sortBy: 'id', sortDirection: 'descending' });
    expect(listed.text).toBe(
      `{"records":[{"id":"a", "n":1.50,"big":12345678901234567890.10,"e":1e2, "u":"\\u00e4"},{"id":"7","ok":true}],"total":2,"page":1,"limit":100}`,
    );
  });

  test('the ticket of a write is a completed task with the same results, under every alias', async () => {
    const stored = (await app.store('films', [{ id: 'a' }])).body;
    for (const path of ['/api/tasks/', '/tasks/', '/task/']) {
      const task = await send(granary.url, 'GET', path + stored.ticket_id);
      expect(task.status).toBe(200);
      expect(task.body).toMatchObject({
        ticket_id: stored.ticket_id,
        status: 'Completed',
        app_id: app.appId,
        block_height: 1,
        transaction_hash: stored.results[0]!.blob_id,
        result: { results: stored.results },
      });
    }
    for (const ticket of [
      'nonsense',
      'c1-AAAAAAAAAAAAAAAAAAAA',
      'czzzzzzzzzzz-AAAAAAAAAAAAAAAAAAAA',
      'j1-AAAAAAAAAAAAAAAAAAAA',
      'p0-AAAAAAAAAAAAAAAAAAAA',
    ]) {
      expect(await send(granary.url, 'GET', `/api/tasks/${ticket}`)).toMatchObject({
        status: 404,
        body: { code: 'TASK_NOT_FOUND' },
      });
    }
  });

  test('a document with an existing id becomes the new version, and older ones are kept as history', async () => {
    await app.store('films', [
      { id: 'a', v: 1 },
      { id: 'a', v: 2 },
    ]);
    await app.store('films', [
      { id: 'a', v: 3 },
      { id: 'b', v: 1 },
      { id: 'a', v: 4 },
    ]);
    expect((await app.list('films', { find: { id: 'a' } })).body).toMatchObject({
      total: 1,
      records: [{ id: 'a', v: 4 }],
    });
    const history = await app.list<{ v: number }>('films', { find: { id: 'a' }, include_history: true, sort: ['v'] });
    expect(history.body.records.map(({ v }) => v)).toEqual([1, 2, 3, 4]);
    expect(history.body.total).toBe(4);
    const stats = await app.call('GET', `/api/apps/${app.appId}/collections/films/stats`);
    expect(stats.body).toMatchObject({ document_count: 2, version_count: 5 });
  });

  test('a soft-deleted document stays in /list, marked, and is not in public reads', async () => {
    await app.store('films', [
      { id: 'a', n: 1 },
      { id: 'b', n: 2 },
    ]);
    await app.store('films', [{ id: 'a', deleted: true }]);
    const listed = await app.list('films', { sort: ['id'] });
    expect(listed.body).toMatchObject({
      total: 2,
      records: [
        { id: 'a', deleted: true },
        { id: 'b', n: 2 },
      ],
    });
    const open = await send(granary.url, 'GET', `/api/apps/${app.appId}/collections/films/data`);
    expect(open.body).toMatchObject({ total: 1, records: [{ id: 'b', n: 2 }] });
  });

  test('documents without an id, or with null, get time-ordered ids', async () => {
    const { results } = (await app.store('films', [{ n: 1 }, { id: null, n: 2 }, {}])).body;
    const ids = results.map(({ id }) => id);
    expect(ids).toEqual([...ids].sort());
    expect(new Set(ids).size).toBe(3);
    for (const id of ids) expect(id).toMatch(/^[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$/);
    expect((await app.list('films', { find: { id: { in: ids } } })).body.total).toBe(3);
  });

  test('one invalid document refuses the whole call, and nothing changes', async () => {
    await app.call('POST', `/api/apps/${app.appId}/collections`, {
      name: 'people',
      schema_definition: {
        fields: {
          name: { type: 'string', required: true, validation: { min: 2, max: 5, pattern: '^[a-z]+$' } },
          age: { type: 'number', validation: { min: 0, max: 150 } },
          role: { type: 'string', default: 'user', validation: { enum: ['user', 'admin'] } },
          born: { type: 'date' },
          'address.city': { type: 'string', required: true },
        },
      },
    });
    const refused = await app.call('POST', '/store', {
      root: `${app.appId}::people`,
      data: [
        { name: 'anna', address: { city: 'Ulm' } },
        { name: 'X', age: 151, role: 'root', born: '2020-02-30T00:00:00Z', address: {} },
        { age: 'old', address: { city: 3 } },
      ],
    });
    expect(refused).toMatchObject({ status: 422, body: { code: 'SCHEMA_VIOLATION' } });
    expect(refused.body['details']).toEqual({
      'data[1].name': ['must be at least 2 characters long', 'must match the pattern ^[a-z]+$'],
      'data[1].age': ['must be at most 150'],
      'data[1].role': ['must be one of "user", "admin"'],
      'data[1].born': ['must be an RFC 3339 date and time with offset'],
      'data[1].address.city': ['is required and missing'],
      'data[2].name': ['is required and missing'],
      'data[2].age': ['must be of type number'],
      'data[2].address.city': ['must be of type string'],
    });
    expect((await app.list('people')).body.total).toBe(0);
    await app.store('people', [{ id: '1', name: 'anna', address: { city: 'Ulm' } }]);
    expect((await app.list('people')).text).toContain(
      '{"role":"user","id":"1","name":"anna","address":{"city":"Ulm"}}',
    );
  });

  test('a duplicate of a unique value is refused with its field and position; null, missing and deleted never collide', async () => {
    await app.call('POST', `/api/apps/${app.appId}/collections`, {
      name: 'users',
      schema_definition: { fields: { email: { type: 'string', unique: true } } },
    });
    await app.store('users', [
      { id: 'a', email: 'a@x' },
      { id: 'b', email: null },
      { id: 'c' },
      { id: 'd', email: null },
    ]);
    const refused = await app.call('POST', '/store', {
      root: `${app.appId}::users`,
      data: [
        { id: 'e', email: 'e@x' },
        { id: 'f', email: 'a@x' },
      ],
    });
    expect(refused).toMatchObject({
      status: 409,
      body: { code: 'UNIQUE_VIOLATION', details: { 'data[1].email': [expect.any(String)] } },
    });
    expect((await app.list('users')).body.total).toBe(4);
    await app.store('users', [{ id: 'a', email: 'a@x', deleted: true }]);
    await app.store('users', [{ id: 'f', email: 'a@x' }]);
    expect((await app.list('users')).body.total).toBe(5);
  });

  test('two documents of one call may exchange their unique values', async () => {
    await app.call('POST', `/api/apps/${app.appId}/collections`, {
      name: 'seats',
      schema_definition: { fields: { seat: { type: 'number', unique: true } } },
    });
    await app.store('seats', [
      { id: 'a', seat: 1 },
      { id: 'b', seat: 2 },
    ]);
    await app.store('seats', [
      { id: 'a', seat: 2 },
      { id: 'b', seat: 1 },
    ]);
    expect((await app.list('seats', { sort: ['id'] })).body.records).toEqual([
      { id: 'a', seat: 2 },
      { id: 'b', seat: 1 },
    ]);
  });

  test('two writers of one document both commit: one version each, and the later one is current', async () => {
    const values = Array.from({ length: 40 }, (_, at) => at);
    const answers = await Promise.all(values.map((n) => app.store('films', [{ id: 'one', n }])));
    const heights = answers.map(({ body }) => body.results[0]!.celestia_height).sort((a, b) => a - b);
    expect(heights).toEqual(values.map((n) => n + 1));
    const history = await app.list<{ n: number }>('films', { include_history: true, limit: 1000 });
    expect(history.body.records.map(({ n }) => n).sort((a, b) => a - b)).toEqual(values);
    const last = answers.findIndex(({ body }) => body.results[0]!.celestia_height === values.length);
    expect((await app.list<{ n: number }>('films')).body.records[0]!.n).toBe(last);
  });

  test('one idempotency key used 50 times concurrently has one effect and one answer; other content is refused', async () => {
    const key = randomUUID();
    const body = { root: `${app.appId}::films`, data: [{ n: 1 }] };
    const answers = await Promise.all(
      Array.from({ length: 50 }, () => app.call<StoreAnswer>('POST', '/store', body, { 'idempotency-key': key })),
    );
    expect(new Set(answers.map(({ status, text }) => `${status} ${text}`)).size).toBe(1);
    expect(answers[0]!.status).toBe(202);
    expect((await app.list('films', { include_history: true })).body.total).toBe(1);
    const other = await app.call('POST', '/store', { ...body, data: [{ n: 2 }] }, { 'idempotency-key': key });
    expect(other).toMatchObject({ status: 422, body: { code: 'IDEMPOTENCY_KEY_REUSED' } });
  });

  test('a refused request does not use up its idempotency key', async () => {
    const headers = { 'idempotency-key': 'again' };
    const wrong = await app.call('POST', '/store', { root: `${app.appId}::films`, data: [1] }, headers);
    expect(wrong.status).toBe(400);
    const right = await app.call('POST', '/store', { root: `${app.appId}::films`, data: [{ n: 1 }] }, headers);
    expect(right.status).toBe(202);
  });

  test('32 writers of one app: heights without gap or repeat, and the chain verifies from the documents', async () => {
    const writers = Array.from({ length: 32 }, async (_, writer) => {
      const heights: number[] = [];
      for (let n = 0; n < 5; n++) {
        const { results } = (await app.store(`c${writer % 4}`, [{ id: `${writer}-${n}`, n }, { writer }])).body;
        heights.push(results[0]!.celestia_height);
      }
      expect(heights).toEqual([...heights].sort((a, b) => a - b));
      return heights;
    });
    const heights = (await Promise.all(writers)).flat().sort((a, b) => a - b);
    expect(heights).toEqual(Array.from({ length: 160 }, (_, at) => at + 1));
    await expectChain(granary.databaseUrls.data, app.appId, 160);
  });

  test('a call for another app is refused, whether or not that app exists', async () => {
    const other = await newApp(granary);
    for (const appId of [other.appId, 'nobody-has-this']) {
      const refused = await app.call('POST', '/store', { root: `${appId}::films`, data: [{}] });
      expect(refused).toMatchObject({ status: 403, body: { code: 'FORBIDDEN' } });
      expect(await app.call('POST', '/list', { root: `${appId}::films` })).toMatchObject({
        status: 403,
        body: { code: 'FORBIDDEN' },
      });
    }
  });

  test('a deleted collection disappears at once, and its name can be used for a new one', async () => {
    await app.store('films', [{ id: 'a' }]);
    const refused = await app.call('DELETE', `/api/apps/${app.appId}/collections/films`);
    expect(refused).toMatchObject({ status: 409, body: { code: 'COLLECTION_NOT_EMPTY' } });
    expect(refused.body['error']).toContain('{"force": true} in the body');
    expect((await app.call('DELETE', `/api/apps/${app.appId}/collections/films?force=true`)).status).toBe(200);
    expect(await app.list('films')).toMatchObject({ status: 404, body: { code: 'COLLECTION_NOT_FOUND' } });
    await app.store('films', [{ id: 'b' }]);
    expect((await app.list('films')).body).toMatchObject({ total: 1, records: [{ id: 'b' }] });
  });

  test('a deleted app disappears at once with its keys, its tables are dropped later, and its id is never used again', async () => {
    await app.store('films', [{ id: 'a' }]);
    const operator = { 'x-operator-key': 'operator-key-of-the-tests' };
    const deleted = await send(granary.url, 'DELETE', `/api/applications/${app.appId}`, { headers: operator });
    expect(deleted.status).toBe(200);
    expect(await eventually(async () => (await app.list('films')).status === 401)).toBe(true);
    const again = await send(granary.url, 'POST', '/api/applications', {
      headers: operator,
      body: { app_id: app.appId, name: 'x' },
    });
    expect(again).toMatchObject({ status: 409, body: { code: 'ALREADY_EXISTS' } });
    const client = new Client({ connectionString: granary.databaseUrls.data });
    await client.connect();
    await eventually(async () => {
      const { rows } = await client.query(
        'select dropped_at from application where app_id = $1 and dropped_at is not null',
        [app.appId],
      );
      return rows.length === 1;
    });
    await client.end();
  });
});
