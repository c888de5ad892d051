import { Client } from 'pg';
import { borrowGranary, newApp, transports, type Answer, type Granary, type TestApp } from '../support/granary';
import { closeConnections, sendRaw } from '../support/raw-http';

describe.each(transports)('one document (%s)', (transport) => {
  let granary: Granary;
  let app: TestApp;
  let path: string;
  beforeAll(async () => {
    granary = await borrowGranary(transport);
  });
  afterAll(async () => {
    closeConnections();
    await granary.stop();
  });
  beforeEach(async () => {
    app = await newApp(granary);
    path = `/api/apps/${app.appId}/collections/films/documents`;
  });

  const call = (method: string, id: string, body?: string | object, headers: Record<string, string> = {}) =>
    app.call<Record<string, unknown>>(method, `${path}/${encodeURIComponent(id)}`, body, headers);
  const put = (id: string, body: string | object, headers?: Record<string, string>) => call('PUT', id, body, headers);
  const patch = (id: string, body: string | object, headers?: Record<string, string>) =>
    call('PATCH', id, body, headers);
  /** With the percent-encoded id as it is: `fetch` would resolve a dot segment. */
  const raw = async (method: string, id: string, body?: string, query = '') => {
    const headers = { 'x-app-key': app.key, ...(body === undefined ? {} : { 'content-type': 'application/json' }) };
    const address = `${path}/${id.replaceAll('.', '%2E')}${query}`;
    const { status, json } = await sendRaw(granary.url, { method, path: address, headers, ...(body && { body }) });
    return { status, body: json as Record<string, unknown> };
  };
  const etag = ({ headers }: Answer) => headers.get('etag');

  test('a document is written, read, patched and deleted, each version under its ETag', async () => {
    const created = await put('a', '{"n":1.50, "big":12345678901234567890.10,"at":{"x":1,"y":2}}');
    expect([created.status, etag(created), created.headers.get('location')]).toEqual([
      201,
      '"1"',
      `/api/apps/${app.appId}/collections/films/documents/a`,
    ]);
    expect(created.text).toBe('{"id":"a","n":1.50, "big":12345678901234567890.10,"at":{"x":1,"y":2}}');
    const read = await call('GET', 'a');
    expect([read.status, etag(read), read.text]).toEqual([200, '"1"', created.text]);
    const patched = await patch('a', '{"at":{"y":null,"z":[1.0]},"t":"é"}');
    expect([patched.status, etag(patched)]).toEqual([200, '"2"']);
    expect(patched.text).toBe('{"id":"a","n":1.50,"big":12345678901234567890.10,"at":{"x":1,"z":[1.0]},"t":"é"}');
    expect((await call('GET', 'a')).text).toBe(patched.text);
    const replaced = await put('a', { n: 2 });
    expect([replaced.status, etag(replaced), replaced.text]).toEqual([200, '"3"', '{"id":"a","n":2}']);
    const deleted = await call('DELETE', 'a');
    expect([deleted.status, etag(deleted), deleted.body]).toEqual([200, '"4"', { id: 'a', version: 4, deleted: true }]);
    expect(await call('GET', 'a')).toMatchObject({ status: 404, body: { code: 'DOCUMENT_NOT_FOUND' } });
    const listed = await app.list('films', { include_history: true, sortBy: 'n' });
    expect(listed.body.total).toBe(4);
    expect((await app.list('films')).text).toContain('"records":[{"id":"a","n":2,"deleted":true}]');
    const again = await put('a', { n: 3 });
    expect([again.status, etag(again)]).toEqual([201, '"5"']);
  });

  test.each(['.', '..'])(
    'no document is stored under the id %s, whose address is that of its collection',
    async (id) => {
      const root = `${app.appId}::films`;
      const batch = (operation: string) => ({ operations: [{ operation, collection: 'films', data: { id, n: 1 } }] });
      const answers = [
        await app.call('POST', '/store', { root, data: [{ id: 'a' }, { id, n: 1 }] }),
        await app.call('POST', '/store', { root, data: [{ id, deleted: true }] }),
        await app.call('POST', `/api/apps/${app.appId}/batch`, batch('create')),
        await app.call('POST', `/api/apps/${app.appId}/batch`, batch('update')),
        ...(await Promise.all(['PUT', 'PATCH'].map((method) => raw(method, id, '{"n":1}')))),
      ];
      for (const { status, body } of answers) {
        expect({ status, body }).toMatchObject({ status: 400, body: { code: 'VALIDATION_FAILED' } });
        expect(JSON.stringify(body['details'])).toContain('must not be . or ..');
      }
      expect((await app.call('GET', `/api/apps/${app.appId}/collections/films`)).status).toBe(404);
      await put('a', {});
      const valid = await app.call('POST', `/api/apps/${app.appId}/collections/films/validate`, { data: [{ id }] });
      expect(valid.body).toMatchObject({ valid: false });
      for (const other of ['...', '.a', '%2E%2E', './', '..\\']) expect((await put(other, {})).status).toBe(201);
    },
  );

  test.each(['delete', 'erase'])(
    'what an earlier release stored under the id .. can be listed, and %sd',
    async (how) => {
      await app.store('films', [{ id: 'up', n: 1 }, { id: 'b' }]);
      await storeAs(granary, app.appId, '..');
      expect((await app.list('films', { find: { id: '..' } })).body.records).toEqual([{ id: '..', n: 1 }]);
      if (how === 'delete') {
        const operations = [{ operation: 'delete', collection: 'films', data: { id: '..' } }];
        const batch = await app.call<Array<{ status: number }>>('POST', `/api/apps/${app.appId}/batch`, { operations });
        expect(batch.body.map(({ status }) => status)).toEqual([200]);
      } else {
        expect(await raw('DELETE', '..', undefined, '?erase=true')).toMatchObject({
          status: 200,
          body: { versions: 1 },
        });
      }
      const left = (await app.list<{ id: string; deleted?: true }>('films')).body.records;
      expect(left.filter(({ deleted }) => !deleted).map(({ id }) => id)).toEqual(['b']);
      expect(left).toHaveLength(how === 'delete' ? 2 : 1);
    },
  );

  test('what does not exist is not found, and not created by a patch or a deletion', async () => {
    for (const [method, body] of [['GET'], ['PATCH', { a: 1 }], ['DELETE']] as const) {
      expect(await call(method, 'a', body)).toMatchObject({ status: 404, body: { code: 'COLLECTION_NOT_FOUND' } });
    }
    await put('b', {});
    for (const [method, body] of [['GET'], ['PATCH', { a: 1 }], ['DELETE']] as const) {
      expect(await call(method, 'a', body)).toMatchObject({ status: 404, body: { code: 'DOCUMENT_NOT_FOUND' } });
    }
    expect((await app.list('films')).body.total).toBe(1);
  });

  test('If-Match and If-None-Match decide on the present version, and a refusal changes nothing', async () => {
    expect((await put('a', { n: 1 }, { 'if-match': '*' })).status).toBe(412);
    expect((await put('a', { n: 1 }, { 'if-match': '"1"' })).status).toBe(412);
    expect((await put('a', { n: 1 }, { 'if-none-match': '*' })).status).toBe(201);
    expect(await put('a', { n: 2 }, { 'if-none-match': '*' })).toMatchObject({
      status: 412,
      body: { code: 'PRECONDITION_FAILED', details: { version: 1 } },
    });
    expect((await patch('a', { n: 2 }, { 'if-match': 'W/"1"' })).status).toBe(412);
    expect((await patch('a', { n: 2 }, { 'if-match': '"9", "1"' })).status).toBe(200);
    expect((await patch('a', { n: 3 }, { 'if-match': '"1"' })).status).toBe(412);
    expect((await patch('a', { n: 3 }, { 'if-none-match': '"2"' })).status).toBe(412);
    expect((await call('DELETE', 'a', undefined, { 'if-match': '"1"' })).status).toBe(412);
    expect((await call('GET', 'a')).text).toBe('{"id":"a","n":2}');
    expect((await call('DELETE', 'a', undefined, { 'if-match': '"2-br"' })).status).toBe(200);
    expect((await patch('a', {}, { 'if-match': '2' })).body).toMatchObject({ code: 'VALIDATION_FAILED' });
  });

  test('a GET with the present ETag is answered 304 without a body', async () => {
    await put('a', { text: 'x'.repeat(4_000) });
    for (const tag of ['"1"', 'W/"1"', '"7", "1"', '*', '"1-gzip"']) {
      const answer = await call('GET', 'a', undefined, { 'if-none-match': tag });
      expect([answer.status, answer.text, answer.headers.get('etag')]).toEqual([304, '', '"1"']);
    }
    expect((await call('GET', 'a', undefined, { 'if-none-match': '"2"' })).status).toBe(200);
    const compressed = await call('GET', 'a', undefined, { 'accept-encoding': 'gzip' });
    expect((await call('GET', 'a', undefined, { 'if-none-match': etag(compressed)! })).status).toBe(304);
  });

  test('of two writers with one If-Match one wins, 1,000 times', async () => {
    const race = async (id: string) => {
      await put(id, { n: 0 });
      for (let version = 1; version <= 50; version += 1) {
        const headers = { 'if-match': `"${version}"` };
        const answers = await Promise.all([patch(id, { n: version }, headers), put(id, { n: -version }, headers)]);
        expect(answers.map(({ status }) => status).sort()).toEqual([200, 412]);
      }
      expect(etag(await call('GET', id))).toBe('"51"');
    };
    await Promise.all(Array.from({ length: 20 }, (_, at) => race(`d${at}`)));
  });

  test('of many that create one document one wins, and patches of one document are all applied', async () => {
    const creations = Array.from({ length: 20 }, (_, n) => put('a', { n }, { 'if-none-match': '*' }));
    expect((await Promise.all(creations)).filter(({ status }) => status === 201)).toHaveLength(1);
    const patches = Array.from({ length: 50 }, (_, n) => patch('a', { [`f${n}`]: n }));
    expect((await Promise.all(patches)).every(({ status }) => status === 200)).toBe(true);
    const { body } = await call('GET', 'a');
    expect(Object.keys(body)).toHaveLength(52);
  });

  test('of concurrent PUTs of one document each is answered with its own version, and those that create it with 201', async () => {
    const answers = await Promise.all(
      Array.from({ length: 60 }, async (_, n) => {
        const answer = await put('a', { n, deleted: n % 3 === 0 });
        return { status: answer.status, version: Number(etag(answer)!.slice(1, -1)), text: answer.text };
      }),
    );
    answers.sort((one, other) => one.version - other.version);
    expect(answers.map(({ version }) => version)).toEqual(answers.map((_, at) => at + 1));
    const isCreator = (at: number) => at === 0 || answers[at - 1]!.text.includes('"deleted":true');
    expect(answers.map(({ status }) => status)).toEqual(answers.map((_, at) => (isCreator(at) ? 201 : 200)));
    const listed = await app.list('films', { include_history: true });
    const texts = (all: string[]) => all.toSorted();
    expect(texts(listed.body.records.map((record) => JSON.stringify(record)))).toEqual(
      texts(answers.map(({ text }) => text)),
    );
  });

  test('a repeated request with an Idempotency-Key gets the answer of the first and changes nothing', async () => {
    const key = (name: string) => ({ 'idempotency-key': name });
    const first = await put('a', { n: 1 }, key('one'));
    await patch('a', { n: 2 });
    const repeated = await put('a', { n: 1 }, key('one'));
    expect([repeated.status, etag(repeated), repeated.text]).toEqual([201, '"1"', first.text]);
    expect(repeated.headers.get('idempotency-replayed')).toBe('true');
    expect((await put('a', { n: 9 }, key('one'))).body).toMatchObject({ code: 'IDEMPOTENCY_KEY_REUSED' });
    const conditional = { 'if-match': '"2"', ...key('two') };
    expect((await patch('a', { m: 1 }, conditional)).status).toBe(200);
    expect(etag(await patch('a', { m: 1 }, conditional))).toBe('"3"');
    const removals = [await call('DELETE', 'a', undefined, key('x')), await call('DELETE', 'a', undefined, key('x'))];
    expect(removals.map(({ status, text }) => [status, text])).toEqual([
      [200, '{"id":"a","version":4,"deleted":true}'],
      [200, '{"id":"a","version":4,"deleted":true}'],
    ]);
  });

  test('schema and unique indexes bind every way of writing, and errors name the field of the body', async () => {
    const fields = { n: { type: 'number', required: true, unique: true }, kind: { type: 'string', default: 'film' } };
    await app.call('POST', `/api/apps/${app.appId}/collections`, { name: 'films', schema_definition: { fields } });
    expect((await put('a', { n: 1 })).body).toEqual({ id: 'a', n: 1, kind: 'film' });
    expect((await put('b', { n: 2 })).status).toBe(201);
    const refusals = [
      [await put('a', {}), 422, 'SCHEMA_VIOLATION', 'n'],
      [await patch('a', { n: null }), 422, 'SCHEMA_VIOLATION', 'n'],
      [await patch('a', { n: 2 }), 409, 'UNIQUE_VIOLATION', 'n'],
      [await patch('a', { id: 'b' }), 400, 'VALIDATION_FAILED', 'id'],
      [await patch('a', '{"n":1,"n":2}'), 400, 'VALIDATION_FAILED', 'n'],
      [await put('a', '{"n":1'), 400, 'MALFORMED_JSON', undefined],
      [await put('a', []), 400, 'VALIDATION_FAILED', 'body'],
    ] as const;
    for (const [answer, status, code, field] of refusals) {
      expect(answer).toMatchObject({ status, body: { code } });
      expect(Object.keys(answer.body['details'] as object)).toEqual(field === undefined ? [] : [field]);
    }
    expect((await patch('a', { id: 'a', n: 3 })).body).toEqual({ id: 'a', n: 3, kind: 'film' });
    expect((await put('b', { n: 1 })).status).toBe(200);
  });

  test('any id that a document may have can be in the path', async () => {
    for (const id of ['a/b', 'ü %', '?x=1', '"', '7', '\u{1f600}'.repeat(256)]) {
      expect((await put(id, {})).body).toEqual({ id });
      expect((await call('GET', id)).body).toEqual({ id });
    }
    expect((await put('x'.repeat(257), {})).status).toBe(400);
  });
});

/** Gives the document `up` of the collection `films` an id that is refused today, as an earlier release stored it. */
async function storeAs({ databaseUrls }: Granary, appId: string, id: string): Promise<void> {
  const client = new Client({ connectionString: databaseUrls.data });
  await client.connect();
  try {
    const { rows } = await client.query<{ name: string }>(
      `select format('a_%s.c_%s', a.number, c.number) as name from collection c
       join application a on a.number = c.app_number where a.app_id = $1 and c.name = 'films'`,
      [appId],
    );
    await client.query(`update ${rows[0]!.name} set id = $1, body = replace(body, '"up"', $2) where id = 'up'`, [
      id,
      JSON.stringify(id),
    ]);
  } finally {
    await client.end();
  }
}
