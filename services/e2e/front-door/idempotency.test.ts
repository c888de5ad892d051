import { randomUUID } from 'node:crypto';
import { Client } from 'pg';
import { borrowGranary, newApp, operatorKey, send, transports, type Granary, type TestApp } from '../support/granary';

describe.each(transports)('Idempotency-Key (%s)', (transport) => {
  let granary: Granary;
  let app: TestApp;
  beforeAll(async () => {
    granary = await borrowGranary(transport);
    app = await newApp(granary);
    await app.store('docs', [{ id: '1', n: 1 }]);
  });
  afterAll(() => granary.stop());

  const path = (rest: string) => `/api/apps/${app.appId}/${rest}`;
  const withKey = (method: string, rest: string, body: object | undefined, key: string) =>
    app.call(method, path(rest), body, { 'idempotency-key': key });
  const reused = { status: 422, body: { code: 'IDEMPOTENCY_KEY_REUSED' } };

  test('creating and deleting a collection give the same answer again, whatever has happened to it since', async () => {
    const key = randomUUID();
    const first = await withKey('POST', 'collections', { name: 'once', access_policy: { read: 'private' } }, key);
    expect(first.status).toBe(201);
    expect(first.headers.get('idempotency-replayed')).toBeNull();
    const again = await withKey('POST', 'collections', { name: 'once', access_policy: { read: 'private' } }, key);
    expect([again.status, again.text]).toEqual([201, first.text]);
    expect(again.headers.get('idempotency-replayed')).toBe('true');
    expect(again.headers.get('location')).toBe(first.headers.get('location'));
    expect(await withKey('POST', 'collections', { name: 'other' }, key)).toMatchObject(reused);

    const deletion = randomUUID();
    const deleted = await withKey('DELETE', 'collections/once', undefined, deletion);
    const twice = await withKey('DELETE', 'collections/once', undefined, deletion);
    expect([twice.status, twice.text]).toEqual([200, deleted.text]);
    expect(await withKey('DELETE', 'collections/once?force=true', undefined, deletion)).toMatchObject(reused);
    const after = await withKey('POST', 'collections', { name: 'once', access_policy: { read: 'private' } }, key);
    expect([after.status, after.text]).toEqual([201, first.text]);
    expect((await app.call('GET', path('collections/once'))).status).toBe(404);
  });

  test('creating and refreshing a view, a query and an index give the same answer and ticket again', async () => {
    const view = { name: 'v', source_collections: ['docs'], query: {} };
    const query = {
      name: 'q',
      source_collection: 'docs',
      base_query: { find: { n: 1 } },
      example_response: { n: 1.0 },
    };
    const index = { name: 'i', collection: 'docs', field_name: 'n', index_type: 'number' };
    for (const [rest, body, status] of [
      ['views', view, 202],
      ['views/v/refresh', undefined, 202],
      ['queries', query, 201],
      ['indexes', index, 201],
      ['collections/docs/indexes/i/rebuild', undefined, 202],
      ['collections/docs/retention', { retention_days: 30 }, 200],
    ] as const) {
      const key = randomUUID();
      const first = await withKey('POST', rest, body, key);
      expect([rest, first.status]).toEqual([rest, status]);
      if (typeof first.body['ticket_id'] === 'string') await app.ended(first.body['ticket_id']);
      const again = await withKey('POST', rest, body, key);
      expect([rest, again.status, again.text]).toEqual([rest, status, first.text]);
      expect(again.headers.get('idempotency-replayed')).toBe('true');
    }
  });

  test('an app key is created once, and its secret is shown once', async () => {
    const key = randomUUID();
    const body = { name: 'reporting', permissions: ['Read'] };
    const first = await withKey('POST', 'regenerate-key', body, key);
    const again = await withKey('POST', 'regenerate-key', body, key);
    expect(again).toMatchObject({ status: 200, body: { ...first.body, app_key: null } });
    const secret = first.body['app_key'] as string;
    const list = { root: `${app.appId}::docs` };
    expect((await send(granary.url, 'POST', '/list', { key: secret, body: list })).status).toBe(200);
  });

  test('an Idempotency-Key belongs to the named app key: it holds after that key was regenerated, and not for another one', async () => {
    const own = await newApp(granary);
    const key = randomUUID();
    const body = { root: `${own.appId}::docs`, data: [{ n: 1 }] };
    const post = (appKey: string) =>
      send(granary.url, 'POST', '/store', { key: appKey, body, headers: { 'idempotency-key': key } });
    const first = await post(own.key);
    const other = await own.call<{ app_key: string }>('POST', `/api/apps/${own.appId}/regenerate-key`, {
      name: 'other',
      permissions: ['Write'],
    });
    const made = await own.call<{ app_key: string }>('POST', `/api/apps/${own.appId}/regenerate-key`, {
      name: 'default',
      permissions: ['Admin', 'Read', 'Write'],
    });
    const again = await post(made.body.app_key);
    expect([again.status, again.text]).toEqual([202, first.text]);
    expect((await post(other.body.app_key)).body['ticket_id']).not.toBe(first.body['ticket_id']);
    const bytes = {
      key: made.body.app_key,
      body: 'bytes',
      headers: { 'idempotency-key': key, 'content-type': 'text/plain' },
    };
    const upload = () => send(granary.url, 'POST', `/api/apps/${own.appId}/blobs/files`, bytes);
    const blob = await upload();
    expect((await upload()).text).toBe(blob.text);
  });

  test('the Idempotency-Key of a refused request can be used again', async () => {
    const key = randomUUID();
    expect((await withKey('POST', 'collections', { name: 'docs' }, key)).status).toBe(409);
    expect((await withKey('POST', 'collections', { name: 'free' }, key)).status).toBe(201);
  });

  test('of concurrent requests with one Idempotency-Key one has an effect, and all get its answer', async () => {
    const key = randomUUID();
    const answers = await Promise.all(
      Array.from({ length: 6 }, () => withKey('POST', 'collections', { name: 'at_once' }, key)),
    );
    expect(new Set(answers.map(({ status, text }) => `${status} ${text}`))).toEqual(
      new Set([`201 ${answers[0]!.text}`]),
    );
    expect(answers.filter(({ headers }) => headers.get('idempotency-replayed') === null)).toHaveLength(1);
  });

  test('a request with the Idempotency-Key of a running one waits for it, and then gets 409', async () => {
    const key = randomUUID();
    const holder = new Client({ connectionString: granary.databaseUrls.data });
    await holder.connect();
    try {
      const { rows } = await holder.query<{ number: string }>('select number from application where app_id = $1', [
        app.appId,
      ]);
      await holder.query('begin');
      await holder.query(
        `insert into idempotency (caller, method, path, key, content_hash, answer, at)
         values ($1, 'POST', $2, $3, '', '', now())`,
        [`app/${rows[0]!.number}/default`, `/apps/${app.appId}/collections`, key],
      );
      const waiting = await withKey('POST', 'collections', { name: 'late' }, key);
      expect(waiting).toMatchObject({ status: 409, body: { code: 'REQUEST_IN_PROGRESS' } });
    } finally {
      await holder.query('rollback');
      await holder.end();
    }
    expect((await withKey('POST', 'collections', { name: 'late' }, key)).status).toBe(201);
  });

  test('a batch under the key of another batch is refused as a whole, whatever it has in common with it', async () => {
    const operation = { operation: 'update', collection: 'docs', data: { id: '1', n: 7 } };
    const key = randomUUID();
    // One document twice: each operation is a commit, with an answer of its own.
    expect((await withKey('POST', 'batch', { operations: [operation, operation] }, key)).status).toBe(200);
    const before = await app.list('docs', { include_history: true });
    for (const body of [{ operations: [operation, operation, operation] }, { operations: [operation], atomic: true }]) {
      expect(await withKey('POST', 'batch', body, key)).toMatchObject(reused);
    }
    expect((await app.list('docs', { include_history: true })).text).toBe(before.text);
  });

  test('what is kept for an app is bounded: beyond, a new key gets 429, and a kept answer is still given', async () => {
    const own = await newApp(granary);
    const store = (key: string) =>
      own.call('POST', '/store', { root: `${own.appId}::docs`, data: [{ n: 1 }] }, { 'idempotency-key': key });
    const create = (name: string) =>
      own.call('POST', `/api/apps/${own.appId}/collections`, { name }, { 'idempotency-key': name });
    const kept = await store('first');
    expect((await create('one')).status).toBe(201);
    const client = new Client({ connectionString: granary.databaseUrls.data });
    await client.connect();
    try {
      const { rows } = await client.query<{ owner: string; keys: string }>(
        `update idempotency_usage u set keys = 10000000 from application a
         where u.owner = 'app/' || a.number and a.app_id = $1 returning u.owner, old.keys`,
        [own.appId],
      );
      expect(rows).toMatchObject([{ keys: '2' }]);
      const refused = { status: 429, body: { code: 'TOO_MANY_REQUESTS' } };
      expect(await store('second')).toMatchObject(refused);
      expect(await create('two')).toMatchObject(refused);
      expect((await store('first')).text).toBe(kept.text);
      expect((await own.store('docs', [{ n: 2 }])).status).toBe(202);
      await client.query('update idempotency_usage set keys = 2 where owner = $1', [rows[0]!.owner]);
    } finally {
      await client.end();
    }
    expect((await store('second')).status).toBe(202);
  });

  test('an Idempotency-Key of the operator creates an app once', async () => {
    const headers = { 'x-operator-key': operatorKey, 'idempotency-key': randomUUID() };
    const make = () => send(granary.url, 'POST', '/api/applications', { body: { name: 'Once' }, headers });
    const first = await make();
    const again = await make();
    expect(again).toMatchObject({ status: 201, body: { ...first.body, app_key: null } });
    expect(again.headers.get('idempotency-replayed')).toBe('true');
  });
});
