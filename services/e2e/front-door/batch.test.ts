import { borrowGranary, newApp, transports, type Granary, type TestApp } from '../support/granary';

interface Result {
  success: boolean;
  operation: string;
  collection: string;
  status: number;
  result?: { id: string; version: number; celestia_height: number; blob_id: string };
  error?: string;
  code?: string;
  details?: Record<string, unknown>;
}

interface Refusal {
  code: string;
  details: Record<string, string[]>;
}

describe.each(transports)('batches (%s)', (transport) => {
  let granary: Granary;
  let app: TestApp;
  beforeAll(async () => {
    granary = await borrowGranary(transport);
  });
  afterAll(() => granary.stop());
  beforeEach(async () => {
    app = await newApp(granary);
  });

  const batch = (operations: unknown, more: object = {}, headers?: Record<string, string>) =>
    app.call<Result[] & Refusal>('POST', `/api/apps/${app.appId}/batch`, { operations, ...more }, headers);
  const operation = (kind: string, data: object, conditions?: object, collection = 'films') => ({
    operation: kind,
    collection,
    data,
    ...(conditions && { conditions }),
  });
  const texts = async (collection = 'films') =>
    (await app.list(collection, { sort: ['id'] })).body.records.map((record) => JSON.stringify(record));

  test('each operation has its own result, and a refused one does not affect the others', async () => {
    await app.store('films', [
      { id: 'a', n: 1 },
      { id: 'b', n: 2 },
    ]);
    const { status, body } = await batch([
      operation('create', { id: 'a' }),
      operation('create', { n: 3 }),
      operation('update', { id: 'a', m: 1 }),
      operation('update', { id: 'x', m: 1 }),
      operation('update', { id: 'b', n: 5 }, { n: { gt: 2 } }),
      operation('update', { id: 'b', n: 6 }, { n: 2 }),
      operation('delete', { id: 'a' }),
      operation('delete', { id: 'a' }, undefined, 'nowhere'),
    ]);
    expect(status).toBe(200);
    expect(body.map(({ status: ofOne, code, result }) => [ofOne, code ?? result?.version])).toEqual([
      [409, 'ALREADY_EXISTS'],
      [201, 1],
      [200, 2],
      [404, 'DOCUMENT_NOT_FOUND'],
      [412, 'PRECONDITION_FAILED'],
      [200, 2],
      [200, 3],
      [404, 'COLLECTION_NOT_FOUND'],
    ]);
    expect(body.map(({ success }) => success)).toEqual([false, true, true, false, false, true, true, false]);
    expect(body[7]).toMatchObject({ operation: 'delete', collection: 'nowhere' });
    expect(await texts()).toEqual([
      `{"id":"${body[1]!.result!.id}","n":3}`,
      '{"id":"a","n":1,"m":1,"deleted":true}',
      '{"id":"b","n":6}',
    ]);
  });

  test('an atomic batch commits in all its collections or in none', async () => {
    await app.store('films', [{ id: 'a', n: 1 }]);
    const operations = [
      operation('create', { id: 'n' }, undefined, 'new'),
      operation('update', { id: 'a', n: 2 }),
      operation('create', { id: 'b' }),
    ];
    const refused = await batch([...operations, operation('update', { id: 'x' })], { atomic: true });
    expect(refused).toMatchObject({ status: 404, body: { code: 'DOCUMENT_NOT_FOUND' } });
    expect(await texts()).toEqual(['{"id":"a","n":1}']);
    expect((await app.list('new')).status).toBe(404);
    const { status, body } = await batch(operations, { atomic: true });
    expect(status).toBe(200);
    expect(body.map(({ status: ofOne, result }) => [ofOne, result?.id, result?.celestia_height])).toEqual([
      [201, 'n', 2],
      [200, 'a', 3],
      [201, 'b', 3],
    ]);
    expect(await texts()).toEqual(['{"id":"a","n":2}', '{"id":"b"}']);
    expect(await texts('new')).toEqual(['{"id":"n"}']);
  });

  test('an update or deletion without an id in its data is of the document that its conditions name', async () => {
    await app.store('films', [
      { id: 'a', n: 1 },
      { id: 'b', n: 2 },
      { id: 'c', n: 3 },
    ]);
    const { status, body } = await batch([
      operation('update', { n: 5 }, { id: 'a' }),
      operation('delete', {}, { id: { eq: 'b' }, n: { gt: 1 } }),
      { operation: 'delete', collection: 'films', conditions: { id: 'c', n: 4 } },
      { operation: 'delete', collection: 'films', conditions: { id: 'x' } },
      operation('update', { id: 'c', n: 6 }, { id: 'a' }),
    ]);
    expect(status).toBe(200);
    expect(body.map((result) => [result.status, result.result?.id ?? result.code])).toEqual([
      [200, 'a'],
      [200, 'b'],
      [412, 'PRECONDITION_FAILED'],
      [404, 'DOCUMENT_NOT_FOUND'],
      [412, 'PRECONDITION_FAILED'],
    ]);
    expect(await texts()).toEqual(['{"id":"a","n":5}', '{"id":"b","n":2,"deleted":true}', '{"id":"c","n":3}']);
    const unnamed: object[] = [{ n: 1 }, { or: [{ id: 'a' }, { id: 'b' }] }, { id: { in: ['a'] } }, { 'x.id': 'a' }];
    for (const conditions of [undefined, ...unnamed]) {
      for (const kind of ['update', 'delete']) {
        const refused = await batch([operation(kind, { n: 9 }, conditions)]);
        expect(refused).toMatchObject({
          status: 400,
          body: { details: { 'operations[0].data.id': expect.any(Array) as unknown } },
        });
      }
    }
    const without = await batch([{ operation: 'update', collection: 'films', conditions: { id: 'a' } }]);
    expect(without).toMatchObject({
      status: 400,
      body: { details: { 'operations[0].data': expect.any(Array) as unknown } },
    });
  });

  test('conditions of an atomic batch are decided together: of two that take from one account one wins', async () => {
    await app.store('accounts', [
      { id: 'a', cents: 100 },
      { id: 'b', cents: 0 },
    ]);
    const transfer = () =>
      batch(
        [
          operation('update', { id: 'a', cents: 0 }, { cents: 100 }, 'accounts'),
          operation('update', { id: 'b', cents: 100 }, { cents: 0 }, 'accounts'),
        ],
        { atomic: true },
      );
    const answers = await Promise.all(Array.from({ length: 20 }, transfer));
    expect(answers.filter(({ status }) => status === 200)).toHaveLength(1);
    expect(answers.filter(({ status }) => status === 412)).toHaveLength(19);
    expect(await texts('accounts')).toEqual(['{"id":"a","cents":0}', '{"id":"b","cents":100}']);
  });

  test('a repeated batch with an Idempotency-Key gets the same results, generated ids among them', async () => {
    await app.store('films', [{ id: 'a', n: 1 }]);
    for (const atomic of [true, false]) {
      const operations = [operation('create', { n: 1 }), operation('update', { id: 'a', [`m${atomic}`]: 1 })];
      const headers = { 'idempotency-key': `key-${atomic}` };
      const first = await batch(operations, { atomic }, headers);
      const again = await batch(operations, { atomic }, headers);
      expect(again.body).toEqual(first.body);
      expect(first.body.every(({ success }) => success)).toBe(true);
      expect(again.headers.get('idempotency-replayed')).toBe('true');
      const other = await batch([operation('create', { n: 2 })], { atomic }, headers);
      expect(other).toMatchObject({ status: 422, body: { code: 'IDEMPOTENCY_KEY_REUSED' } });
    }
    expect((await app.list('films')).body.total).toBe(3);
  });

  test('a repeated batch gets the refusals of the first, although what was refused would be accepted now', async () => {
    await app.store('films', [
      { id: 'a', n: 1 },
      { id: 'c', n: 1 },
    ]);
    const refused = [operation('update', { id: 'b', m: 1 }), operation('update', { id: 'c', m: 1 }, { n: 2 })];
    const operations = [operation('create', { n: 3 }), ...refused, operation('update', { id: 'a', m: 2 })];
    const first = await batch(operations, {}, { 'idempotency-key': 'refused' });
    expect(first.body.map(({ status }) => status)).toEqual([201, 404, 412, 200]);
    await app.store('films', [{ id: 'b' }, { id: 'c', n: 2 }]);
    const again = await batch(operations, {}, { 'idempotency-key': 'refused' });
    expect(again.body).toEqual(first.body);
    expect(again.headers.get('idempotency-replayed')).toBe('true');
  });

  test('where a unique value is taken the other operations are made once, however often the batch is repeated', async () => {
    const fields = { n: { type: 'number', unique: true } };
    await app.call('POST', `/api/apps/${app.appId}/collections`, { name: 'films', schema_definition: { fields } });
    await app.store('films', [
      { id: 'a', n: 1 },
      { id: 'b', n: 2 },
    ]);
    const operations = [operation('create', { id: 'c', n: 1 }), operation('update', { id: 'b', m: 1 })];
    const headers = { 'idempotency-key': 'unique' };
    const first = await batch(operations, {}, headers);
    expect(first.body.map(({ status, result }) => [status, result?.version])).toEqual([
      [409, undefined],
      [200, 2],
    ]);
    const again = await batch(operations, {}, headers);
    expect(again.body).toEqual(first.body);
    await batch([operation('update', { id: 'a', n: 5 })]);
    const completed = await batch(operations, {}, headers);
    expect(completed.body.map(({ status, result }) => [status, result?.version])).toEqual([
      [201, 1],
      [200, 2],
    ]);
    const other = await batch(operations.slice(1), {}, headers);
    expect(other).toMatchObject({ status: 422, body: { code: 'IDEMPOTENCY_KEY_REUSED' } });
  });

  test('a repeated batch has its answer, although the data set of a condition is gone', async () => {
    await app.store('films', [{ id: 'a', city: 'Ulm' }]);
    await app.call('PUT', `/api/apps/${app.appId}/datasets/cities`, { values: ['Ulm'] });
    for (const atomic of [true, false]) {
      const operations = [operation('update', { id: 'a', [`m${atomic}`]: 1 }, { city: { inDataset: 'cities' } })];
      const headers = { 'idempotency-key': `dataset-${atomic}` };
      await app.call('PUT', `/api/apps/${app.appId}/datasets/cities`, { values: ['Ulm'] });
      const first = await batch(operations, { atomic }, headers);
      expect(first.body[0]).toMatchObject({ success: true });
      await app.call('DELETE', `/api/apps/${app.appId}/datasets/cities`);
      const again = await batch(operations, { atomic }, headers);
      expect(again).toMatchObject({ status: 200, body: first.body });
      const fresh = await batch(operations, { atomic });
      expect(atomic ? fresh.body.code : fresh.body[0]!.code).toBe('INVALID_QUERY');
    }
  });

  test('a refusal names the field by its place in the request', async () => {
    const fields = { n: { type: 'number', unique: true } };
    await app.call('POST', `/api/apps/${app.appId}/collections`, { name: 'films', schema_definition: { fields } });
    await app.store('films', [{ id: 'a', n: 1 }]);
    const bad = [operation('create', { id: 'b', n: 2 }), operation('create', { id: 'c', n: 'x' })];
    expect((await batch(bad, { atomic: true })).body).toMatchObject({
      code: 'SCHEMA_VIOLATION',
      details: { 'operations[1].data.n': [expect.anything()] },
    });
    const taken = [operation('create', { id: 'b', n: 2 }), operation('update', { id: 'b', n: 2 }, undefined, 'other')];
    await app.store('other', [{ id: 'b' }]);
    const collides = [...taken, operation('create', { id: 'c', n: 1 })];
    expect((await batch(collides, { atomic: true })).body).toMatchObject({
      code: 'UNIQUE_VIOLATION',
      details: { 'operations[2].data.n': [expect.anything()] },
    });
    const separate = await batch(collides);
    expect(separate.body.map(({ status }) => status)).toEqual([201, 200, 409]);
  });

  test('1,000 operations are one request, and one more is refused', async () => {
    const creations = Array.from({ length: 1_000 }, (_, n) => operation('create', { id: `d${n}`, n }));
    const { body } = await batch(creations);
    expect(body.filter(({ success }) => success)).toHaveLength(1_000);
    const updates = Array.from({ length: 1_000 }, (_, n) => operation('update', { id: `d${n}`, m: n }, { n }));
    expect((await batch(updates, { atomic: true })).body.every(({ success }) => success)).toBe(true);
    expect(await batch([...creations, creations[0]])).toMatchObject({ status: 400, body: { code: 'LIMIT_EXCEEDED' } });
  });

  test.each([
    ['operations', undefined],
    ['operations', []],
    ['operations', {}],
    ['operations[0]', [1]],
    ['operations[0].operation', [{ operation: 'upsert', collection: 'c', data: { id: 'a' } }]],
    ['operations[0].collection', [{ operation: 'create', collection: '', data: {} }]],
    ['operations[0].data', [{ operation: 'create', collection: 'c' }]],
    ['operations[0].data', [{ operation: 'create', collection: 'c', data: [] }]],
    ['operations[0].data.id', [{ operation: 'delete', collection: 'c', data: {} }]],
    ['operations[0].more', [{ operation: 'create', collection: 'c', data: {}, more: 1 }]],
  ])('a batch that is wrong in %s is refused whole', async (field, operations) => {
    const answer = await batch(operations);
    expect(answer).toMatchObject({ status: 400, body: { code: 'VALIDATION_FAILED' } });
    expect(Object.keys(answer.body.details)).toEqual([field]);
  });

  test('a condition that is no filter is refused', async () => {
    const answer = await batch([operation('create', {}, { n: { nonsense: 1, gt: 1 } })]);
    expect(answer).toMatchObject({ status: 400, body: { code: 'INVALID_QUERY' } });
  });

  test('a condition with a join is refused, for a join filters nothing', async () => {
    const join = { author: { model: 'authors', many: false, resolve: { find: { id: '$data.author' } } } };
    const answer = await batch([operation('update', { id: 'a' }, { n: 1, ...join })]);
    expect(answer).toMatchObject({ status: 400, body: { code: 'INVALID_QUERY' } });
    expect(Object.keys(answer.body.details)).toEqual(['operations[0].conditions.author']);
  });

  test('an atomic batch changes each document once', async () => {
    const twice = [operation('create', { id: 'a' }), operation('update', { id: 'a', n: 1 })];
    expect((await batch(twice, { atomic: true })).body.details).toHaveProperty(['operations[1].data.id']);
    expect((await batch(twice)).body.map(({ status }) => status)).toEqual([201, 200]);
  });
});
