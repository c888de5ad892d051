import { randomUUID } from 'node:crypto';
import { borrowGranary, newApp, send, transports, type Granary, type TestApp } from '../support/granary';

describe.each(transports)('data sets (%s)', (transport) => {
  let granary: Granary;
  let app: TestApp;
  beforeAll(async () => {
    granary = await borrowGranary(transport);
    app = await newApp(granary);
  });
  afterAll(() => granary.stop());

  const path = (name = '') => `/api/apps/${app.appId}/datasets${name && `/${name}`}`;
  const put = (name: string, body: string | object, headers?: Record<string, string>) =>
    app.call('PUT', path(name), body, headers);
  const idsOf = async (find: object, collection = 'c') => {
    const { status, body, text } = await app.list<{ id: string }>(collection, { find });
    expect([status, text.slice(0, 300)]).toEqual([200, expect.anything()]);
    return body.records.map(({ id }) => id).sort();
  };

  test('are created, listed, read as they were sent, replaced and deleted', async () => {
    const text = '[ "a", 1.50, 9007199254740993, true, null, "a" ]';
    const made = await put('first', `{"values":${text}}`);
    const info = { name: 'first', count: 6, bytes: text.length, updated_at: expect.any(String) as unknown };
    expect([made.status, made.headers.get('location'), made.body]).toEqual([201, path('first'), info]);
    const found = await app.call('GET', path('first'));
    expect(found.status).toBe(200);
    expect(found.text).toContain(`"values":${text}`);
    const replaced = await put('first', { values: [] });
    expect([replaced.status, replaced.body]).toEqual([200, { ...info, count: 0, bytes: 2 }]);
    expect((await put('second', { values: [1] })).status).toBe(201);
    const list = await app.call('GET', path());
    expect(list.body).toMatchObject({ app_id: app.appId, datasets: [{ name: 'first' }, { name: 'second', count: 1 }] });
    const page = await app.call<{ datasets: unknown[]; next_cursor: string }>('GET', `${path()}?limit=1`);
    expect(page.body.datasets).toHaveLength(1);
    expect(page.headers.get('link')).toContain(page.body.next_cursor);
    const deleted = await app.call('DELETE', path('second'));
    expect([deleted.status, deleted.body['success']]).toEqual([200, true]);
    for (const method of ['GET', 'DELETE']) {
      const gone = await app.call(method, path('second'));
      expect([gone.status, gone.body['code']]).toEqual([404, 'DATASET_NOT_FOUND']);
    }
  });

  test('inDataset compares by type, exactly, with and without an index, below `not`, in every entrance', async () => {
    const texts = [
      '{"id":"a","v":1.0}',
      '{"id":"b","v":"1"}',
      '{"id":"c","v":9007199254740992}',
      '{"id":"d","v":9007199254740993}',
      '{"id":"e","v":true}',
      '{"id":"f","v":null}',
      '{"id":"g"}',
      '{"id":"h","v":["x"]}',
      '{"id":"i","v":{"x":1}}',
      ...['x', 'y'].map((end) => `{"id":"long-${end}","v":"${'é'.repeat(300)}${end}"}`),
    ];
    for (const name of ['plain', 'keyed']) {
      const body = `{"root":"${app.appId}::${name}","data":[${texts.join(',')}]}`;
      expect((await app.call('POST', '/store', body)).status).toBe(202);
    }
    const index = { name: 'by_v', collection: 'keyed', field_name: 'v', index_type: 'btree' };
    expect((await app.call('POST', `/api/apps/${app.appId}/indexes`, index)).status).toBe(201);
    const values = `[1,9007199254740993,"true","[\\"x\\"]",null,"${'é'.repeat(300)}x","a","d","long-y"]`;
    expect((await put('mixed', `{"values":${values}}`)).status).toBe(201);
    for (const name of ['plain', 'keyed']) {
      expect(await idsOf({ v: { inDataset: 'mixed' } }, name)).toEqual(['a', 'd', 'f', 'g', 'long-x']);
      expect(await idsOf({ not: [{ 'v.$inDataset': 'mixed' }] }, name)).toEqual(['b', 'c', 'e', 'h', 'i', 'long-y']);
      expect(await idsOf({ id: { inDataset: 'mixed' } }, name)).toEqual(['a', 'd', 'long-y']);
      expect(await idsOf({ not: [{ id: { inDataset: 'mixed' } }], v: { inDataset: 'mixed' } }, name)).toEqual([
        'f',
        'g',
        'long-x',
      ]);
    }
    const read = async (url: string) => {
      const { status, body } = await send<{ records: Array<{ id: string }> }>(granary.url, 'GET', url);
      expect(status).toBe(200);
      return body.records.map(({ id }) => id).sort();
    };
    const expected = ['a', 'd', 'f', 'g', 'long-x'];
    expect(await read(`/api/apps/${app.appId}/collections/keyed/data?v.$inDataset=mixed`)).toEqual(expected);
    const find = { v: { inDataset: 'mixed' } };
    const view = {
      name: 'in_mixed',
      source_collections: ['plain'],
      query: { find },
      variables: { set: 'id.$inDataset' },
    };
    const made = await app.call<{ ticket_id: string }>('POST', `/apps/${app.appId}/views`, view);
    expect(await app.ended(made.body.ticket_id)).toMatchObject({ status: 'Completed' });
    expect(await read(`/api/views/${app.appId}/in_mixed/data`)).toEqual(expected);
    expect(await read(`/api/views/${app.appId}/in_mixed/data?set=mixed`)).toEqual(['a', 'd']);
    const parameters = [{ name: 'set', field_path: 'v.$inDataset' }];
    const query = { name: 'in_set', source_collection: 'keyed', base_query: {}, parameters };
    expect((await app.call('POST', `/apps/${app.appId}/queries`, query)).status).toBe(201);
    expect(await read(`/api/queries/${app.appId}/in_set/data?set=mixed`)).toEqual(expected);

    const explain = () =>
      app.call('POST', `/api/apps/${app.appId}/collections/keyed/explain`, {
        query: { find: { v: { inDataset: 'mixed' } } },
      });
    const explained = await explain();
    expect([explained.status, explained.body['indexes_used']]).toEqual([
      200,
      expect.not.arrayContaining(['primary_key']),
    ]);
    const change = (id: string) => ({
      operations: [{ operation: 'update', collection: 'plain', data: { id, changed: true }, conditions: find }],
      atomic: true,
    });
    expect((await app.call('POST', `/api/apps/${app.appId}/batch`, change('a'))).status).toBe(200);
    expect((await app.call('POST', `/api/apps/${app.appId}/batch`, change('b'))).status).toBe(412);

    expect((await app.call('DELETE', path('mixed'))).status).toBe(200);
    const missing = [
      await explain(),
      await app.call('POST', `/api/apps/${app.appId}/batch`, change('a')),
      await app.list('plain', { find }),
      await send(granary.url, 'GET', `/api/apps/${app.appId}/collections/keyed/data?v.$inDataset=mixed`),
      await send(granary.url, 'GET', `/api/queries/${app.appId}/in_set/data?set=mixed`),
      await send(granary.url, 'GET', `/api/views/${app.appId}/in_mixed/data?set=mixed`),
      await app.call('POST', `/apps/${app.appId}/views`, { ...view, name: 'other' }),
      await app.call('POST', `/apps/${app.appId}/queries`, { ...query, name: 'other', base_query: { find } }),
    ];
    for (const { status, text } of missing) {
      expect([status, text]).toEqual([400, expect.stringContaining('mixed')]);
      expect(text).toContain('INVALID_QUERY');
    }
  });

  test.each<[string, string | object, number, string, string]>([
    ['no object', '[1]', 400, 'VALIDATION_FAILED', 'body'],
    ['no values', {}, 400, 'VALIDATION_FAILED', 'values'],
    ['another member', { values: [], name: 'x' }, 400, 'VALIDATION_FAILED', 'name'],
    ['values that are no array', { values: 'a' }, 400, 'VALIDATION_FAILED', 'values'],
    ['an array among the values', { values: [1, []] }, 400, 'VALIDATION_FAILED', 'values[1]'],
    ['an object among the values', { values: [{}] }, 400, 'VALIDATION_FAILED', 'values[0]'],
    ['text that is no JSON', '{"values":[1,]}', 400, 'MALFORMED_JSON', ''],
    ['values twice', '{"values":[1],"values":[1]}', 400, 'VALIDATION_FAILED', 'values'],
    ['U+0000', '{"values":["\\u0000"]}', 400, 'VALIDATION_FAILED', ''],
    ['a number that is too large', '{"values":[1e999]}', 400, 'VALIDATION_FAILED', ''],
    ['100,001 values', { values: Array(100_001).fill(1) }, 400, 'LIMIT_EXCEEDED', '100000'],
    ['more than 5 MiB', `{"values":["${'x'.repeat(5 * 1024 * 1024)}"]}`, 413, 'PAYLOAD_TOO_LARGE', '5242880'],
  ])('%s is refused, and changes nothing', async (_, body, status, code, says) => {
    await put('kept', { values: ['kept'] });
    const refused = await put('kept', body);
    expect([refused.status, refused.body['code']]).toEqual([status, code]);
    expect(refused.text).toContain(says);
    expect((await app.call('GET', path('kept'))).text).toContain('"values":["kept"]');
  });

  test('100,000 values are taken, while 70,000 in a list stay 400', async () => {
    const values = Array.from({ length: 100_000 }, (_, n) => (n % 2 ? n : `text ${n}`));
    const made = await put('many', { values });
    expect([made.status, made.body['count']]).toEqual([201, 100_000]);
    await app.store('c', [
      { id: 'a', n: 99_999 },
      { id: 'b', n: 99_998 },
      { id: 'c', n: 'text 99998' },
    ]);
    expect(await idsOf({ n: { inDataset: 'many' } })).toEqual(['a', 'c']);
    const { status, text } = await app.list('c', { find: { n: { in: Array.from({ length: 70_000 }, (_, n) => n) } } });
    expect([status, text]).toEqual([400, expect.stringContaining('1000')]);
  });

  test('an app has 100 of them at most, and may still replace each', async () => {
    const full = await newApp(granary);
    const putIn = (n: number) => full.call('PUT', `/apps/${full.appId}/datasets/s${n}`, { values: [n] });
    for (let n = 0; n < 100; n += 1) expect((await putIn(n)).status).toBe(201);
    const refused = await putIn(100);
    expect([refused.status, refused.body['code']]).toEqual([400, 'LIMIT_EXCEEDED']);
    expect(refused.text).toContain('100');
    expect((await putIn(99)).status).toBe(200);
  });

  test('reading needs Read, changing Write; another app gets 403', async () => {
    const other = await newApp(granary);
    await put('guarded', { values: [1] });
    const keyWith = async (...permissions: string[]) => {
      const body = { name: permissions.join(), permissions };
      const made = await app.call<{ app_key: string }>('POST', `/api/apps/${app.appId}/regenerate-key`, body);
      return made.body.app_key;
    };
    const [reading, writing] = [await keyWith('Read'), await keyWith('Write')];
    const statusOf = async (method: string, key: string | undefined, name = 'guarded') => {
      const body = method === 'PUT' ? { values: [1] } : undefined;
      return (await send(granary.url, method, path(name), { key, body })).status;
    };
    expect(await statusOf('GET', reading)).toBe(200);
    expect(await statusOf('GET', reading, '')).toBe(200);
    for (const method of ['PUT', 'DELETE']) expect(await statusOf(method, reading)).toBe(403);
    expect(await statusOf('GET', writing)).toBe(403);
    for (const method of ['GET', 'PUT', 'DELETE']) {
      expect(await statusOf(method, other.key)).toBe(403);
      expect(await statusOf(method, undefined)).toBe(401);
    }
    for (const method of ['PUT', 'DELETE']) expect(await statusOf(method, writing)).toBe(200);
  });

  test('a repeated Idempotency-Key changes nothing again, and another content is refused', async () => {
    const headers = { 'idempotency-key': randomUUID() };
    const first = await put('repeated', { values: [1] }, headers);
    expect((await put('repeated', { values: [2] })).status).toBe(200);
    const again = await put('repeated', { values: [1] }, headers);
    expect([again.status, again.body, again.headers.get('idempotency-replayed')]).toEqual([201, first.body, 'true']);
    expect((await app.call('GET', path('repeated'))).text).toContain('"values":[2]');
    expect((await put('repeated', { values: [3] }, headers)).status).toBe(422);
  });
});
