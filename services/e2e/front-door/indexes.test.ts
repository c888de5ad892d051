import { borrowGranary, newApp, send, transports, type Granary, type Task, type TestApp } from '../support/granary';

const time = expect.stringMatching(/^\d{4}-\d\d-\d\dT/) as string;
const text = expect.stringMatching(/\S/) as string;
const count = expect.any(Number) as number;

interface Made {
  ticket_id?: string;
  code?: string;
  status?: string;
}

describe.each(transports)('indexes (%s)', (transport) => {
  let granary: Granary;
  let app: TestApp;
  let path: string;
  beforeAll(async () => {
    granary = await borrowGranary(transport);
  });
  afterAll(() => granary.stop());
  beforeEach(async () => {
    app = await newApp(granary);
    path = `/api/apps/${app.appId}`;
  });

  const create = (definition: object) =>
    app.call<Made>('POST', `${path}/indexes`, {
      name: 'by_year',
      collection: 'films',
      field_name: 'year',
      index_type: 'number',
      ...definition,
    });
  const get = <T = Record<string, unknown>>(more: string) => app.call<T>('GET', `${path}${more}`);
  const filtered = (query: string) =>
    send<{ total: number; code: string }>(granary.url, 'GET', `${path}/collections/films/data?${query}`);
  /** More documents than are indexed within a request. */
  const many = (documents: (n: number) => object) =>
    app.store(
      'films',
      Array.from({ length: 1500 }, (_, n) => documents(n)),
    );
  const shown = {
    name: 'by_year',
    collection: 'films',
    field_name: 'year',
    index_type: 'number',
    unique: false,
    status: 'ready',
    error: null,
    size_bytes: count,
    entry_count: count,
    created_at: time,
  };
  /** What the answer has besides where the request made the collection. */
  const newCollection = { created_collection: { name: 'films', access_policy: { read: 'public' } } };

  test.each(['btree', 'string', 'number', 'boolean', 'date', 'BTree', 'NUMBER'])(
    'of type %s are ready at once in a small or missing collection, and listed',
    async (index_type) => {
      const made = await create({ index_type });
      expect(made.status).toBe(201);
      const index = { ...shown, index_type: index_type.toLowerCase() };
      expect(made.body).toEqual({ ...index, ...newCollection });
      expect((await get<object[]>('/indexes')).body).toEqual([index]);
      expect((await get<object[]>('/collections/films/indexes')).body).toEqual([index]);
      expect((await get('/collections/films/indexes/by_year')).body).toEqual(index);
      expect((await get('/collections/films')).status).toBe(200);
    },
  );

  test('an identical definition of an index is accepted again, a different one is refused', async () => {
    await create({});
    for (const same of [{}, { index_type: 'Number' }, { fields: ['year'] }, { field_name: null, fields: ['year'] }]) {
      const again = await create(same);
      expect(again.status).toBe(200);
      expect(again.body).toEqual({ ...shown, updated: true });
    }
    for (const other of [{ index_type: 'string' }, { field_name: 'title' }, { unique_constraint: true }]) {
      expect(await create(other)).toMatchObject({ status: 409, body: { code: 'ALREADY_EXISTS' } });
    }
    expect((await get<object[]>('/indexes')).body).toHaveLength(1);
    expect((await create({ collection: 'other' })).status).toBe(201);
  });

  test('an index over several fields is composite, is listed with its fields, and serves cursors', async () => {
    const composite = { name: 'by_both', index_type: 'Composite', field_name: null, fields: ['genre', 'year'] };
    const made = await create(composite);
    expect(made.status).toBe(201);
    const listed = {
      ...shown,
      name: 'by_both',
      field_name: 'genre',
      fields: ['genre', 'year'],
      index_type: 'composite',
    };
    expect(made.body).toEqual({ ...listed, ...newCollection });
    expect((await get<object[]>('/indexes')).body).toEqual([listed]);
    for (const same of [composite, { ...composite, field_name: 'genre_year' }, { ...composite, index_type: 'btree' }]) {
      expect(await create(same)).toMatchObject({ status: 200, body: { updated: true } });
    }
    for (const other of [{ fields: ['year', 'genre'] }, { options: { unique: true } }]) {
      expect(await create({ ...composite, ...other })).toMatchObject({ status: 409, body: { code: 'ALREADY_EXISTS' } });
    }
    for (const wrong of [{ fields: ['a'] }, { fields: ['a', 'a'] }, { fields: null }, { field_name: 'other' }]) {
      expect(await create({ ...composite, name: 'wrong', ...wrong })).toMatchObject({ status: 400 });
    }
    await app.store(
      'films',
      Array.from({ length: 30 }, (_, n) => ({ id: `f${n}`, genre: n % 2 ? 'noir' : 'western', year: 1950 + (n % 9) })),
    );
    type Page = { records: Array<{ year: number }>; page: number | null; total: number; next_cursor?: string };
    const read = (more: string) =>
      send<Page>(granary.url, 'GET', `${path}/collections/films/data?genre=noir&sort=-year&limit=10${more}`);
    const first = (await read('')).body;
    const second = (await read(`&cursor=${first.next_cursor}`)).body;
    expect([first.page, second.page, second.total, second.next_cursor]).toEqual([1, null, 15, undefined]);
    const years = [...first.records, ...second.records].map(({ year }) => year);
    expect(years).toEqual([...years].sort((a, b) => b - a));
    expect(years).toHaveLength(15);
    const altered = `&cursor=${first.next_cursor!.slice(1)}`;
    expect(await read(altered)).toMatchObject({ status: 400, body: { code: 'INVALID_CURSOR' } });
    expect((await app.call('DELETE', `${path}/indexes/films_genre_index`)).status).toBe(200);
    expect((await get<object[]>('/indexes')).body).toEqual([]);
  });

  test('a schema creates its indexes, named by collection and field', async () => {
    await app.call('POST', `${path}/collections`, {
      name: 'films',
      schema_definition: {
        fields: {
          year: { type: 'number', index: true },
          code: { type: 'string', unique: true },
          title: { type: 'string' },
        },
      },
    });
    const { body } = await get<Array<{ name: string; unique: boolean }>>('/indexes');
    expect(body.map(({ name, unique }) => [name, unique]).sort()).toEqual([
      ['films_code_idx', true],
      ['films_year_idx', false],
    ]);
  });

  test('an index of many documents is built by a task with progress, while writes continue', async () => {
    await many((n) => ({ id: `f${n}`, year: 1900 + (n % 100), title: `Film ${n}` }));
    const made = await create({});
    expect(made.status).toBe(202);
    expect(made.body).toEqual({ ...shown, status: 'building', ticket_id: text });
    const stored = await Promise.all(
      Array.from({ length: 20 }, (_, n) =>
        app.store('films', [
          { id: `g${n}`, year: 2050 },
          { id: `f${n}`, year: 2050 },
        ]),
      ),
    );
    expect(stored.map(({ status }) => status)).toEqual(Array(20).fill(202));
    const task = await app.ended(made.body.ticket_id!);
    expect(task).toMatchObject({ status: 'Completed', progress: 1, app_id: app.appId, operation_type: text });
    expect(task.progress_log.length).toBeGreaterThan(0);
    expect((await get('/collections/films/indexes/by_year/status')).body).toEqual({
      name: 'by_year',
      status: 'ready',
      error: null,
      building: false,
      created_at: expect.any(String) as string,
    });
    expect((await get('/collections/films/indexes/by_year/statistics')).body).toEqual({
      name: 'by_year',
      size: count,
      size_bytes: count,
      entry_count: count,
    });
    expect((await filtered('year=1950')).body.total).toBe(15);
    expect((await filtered('year=2050')).body.total).toBe(40);
    expect((await filtered('year.$lt=1910&limit=1')).body.total).toBe(150 - 10);
  });

  test('a unique index over many equal values fails as a task with the reason, and blocks nothing', async () => {
    await many((n) => ({ id: `f${n}`, code: `c${n % 1499}` }));
    const made = await create({ name: 'by_code', field_name: 'code', index_type: 'string', options: { unique: true } });
    expect(made.status).toBe(202);
    const task = await app.ended(made.body.ticket_id!);
    expect(task.status).toEqual({ Failed: { error: expect.stringContaining('code') as string } });
    const index = await get<{ status: string; error: string }>('/collections/films/indexes/by_code');
    expect(index.body.status).toBe('failed');
    expect(index.body.error).toContain('code');
    await app.store('films', [{ id: 'x', code: 'c1' }]);
    expect((await filtered('code=c1')).body).toMatchObject({ code: 'FIELD_NOT_INDEXED' });
  });

  test('a unique index over many different values refuses duplicates once it is built', async () => {
    await many((n) => ({ id: `f${n}`, code: `c${n}` }));
    const made = await create({ name: 'by_code', field_name: 'code', index_type: 'btree', unique_constraint: true });
    expect((await app.ended(made.body.ticket_id!)).status).toBe('Completed');
    const refused = await app.call('POST', '/store', { root: `${app.appId}::films`, data: [{ id: 'x', code: 'c7' }] });
    expect(refused).toMatchObject({
      status: 409,
      body: { code: 'UNIQUE_VIOLATION', details: { 'data[0].code': [text] } },
    });
    await app.store('films', [{ id: 'f7', code: 'free' }]);
    await app.store('films', [{ id: 'x', code: 'c7' }, { code: null }, { code: null }, {}]);
  });

  test('a unique index over few equal values is refused immediately', async () => {
    await app.store('films', [{ code: 'a' }, { code: 'a' }]);
    const refused = await create({
      name: 'by_code',
      field_name: 'code',
      index_type: 'string',
      unique_constraint: true,
    });
    expect(refused).toMatchObject({ status: 409, body: { code: 'UNIQUE_VIOLATION' } });
    expect((await get<object[]>('/indexes')).body).toEqual([]);
    await app.store('films', [{ code: 'a' }]);
  });

  test('a unique index compares values by type: 1, "1" and true are different', async () => {
    await create({ name: 'u', field_name: 'v', index_type: 'btree', unique_constraint: true });
    await app.store('films', [{ v: 1 }, { v: '1' }, { v: true }, { v: 'true' }]);
    for (const v of ['1.0', '1e0', '"1"', 'true', '"\\u0031"']) {
      const body = `{"root":"${app.appId}::films","data":[{"v":${v}}]}`;
      expect(await app.call('POST', '/store', body)).toMatchObject({ status: 409, body: { code: 'UNIQUE_VIOLATION' } });
    }
  });

  test('an index is rebuilt by a task', async () => {
    await app.store('films', [{ year: 1994 }]);
    await create({});
    const rebuilt = await app.call<Made>('POST', `${path}/collections/films/indexes/by_year/rebuild`);
    expect(rebuilt.status).toBe(202);
    expect(rebuilt.body).toEqual({ success: true, message: text, ticket_id: text });
    expect((await app.ended(rebuilt.body.ticket_id!)).status).toBe('Completed');
    expect((await get('/collections/films/indexes/by_year')).body).toMatchObject({ status: 'ready' });
    expect((await filtered('year=1994')).body.total).toBe(1);
  });

  test('an index is deleted by its name, or by collection and field', async () => {
    await app.store('films', [{ year: 1994, code: 'a' }]);
    await create({});
    await create({ name: 'by_code', field_name: 'code', index_type: 'string', unique_constraint: true });
    const gone = await app.call('DELETE', `${path}/collections/films/indexes/by_year`);
    expect(gone).toMatchObject({ status: 200, body: { success: true, message: text } });
    expect((await get('/collections/films/indexes/by_year')).body).toMatchObject({ code: 'INDEX_NOT_FOUND' });
    expect((await filtered('year=1994')).body).toMatchObject({ code: 'FIELD_NOT_INDEXED' });
    expect((await app.call('DELETE', `${path}/indexes/films_code_index`)).status).toBe(200);
    expect((await get<object[]>('/indexes')).body).toEqual([]);
    await app.store('films', [{ code: 'a' }]);
    expect((await create({ index_type: 'btree' })).status).toBe(201);
  });

  test('deleting an index during its build ends the task, and leaves nothing behind', async () => {
    await many((n) => ({ id: `f${n}`, year: n }));
    const made = await create({});
    expect((await app.call('DELETE', `${path}/collections/films/indexes/by_year`)).status).toBe(200);
    const task: Task = await app.ended(made.body.ticket_id!);
    // It may have been done just before; else it says that there was nothing left to do.
    expect(['Completed', { Failed: { error: text } }]).toContainEqual(task.status);
    expect((await get<object[]>('/indexes')).body).toEqual([]);
    await app.store('films', [{ id: 'f1', year: 5 }]);
    expect((await filtered('year=5')).body).toMatchObject({ code: 'FIELD_NOT_INDEXED' });
  });

  test('an index created by 20 concurrent callers is one', async () => {
    await app.store('films', [{ year: 1994 }]);
    const answers = await Promise.all(Array.from({ length: 20 }, () => create({})));
    const statuses = answers.map(({ status }) => status).sort();
    expect(statuses).toEqual([...Array<number>(19).fill(200), 201]);
    expect((await get<object[]>('/indexes')).body).toHaveLength(1);
  });

  test.each(['year "of" \'release\'; drop table x', 'Ünïcode 年', 'a/b?c#d%20', '__proto__', 'x'.repeat(200)])(
    'may be named %s',
    async (name) => {
      await app.store('films', [{ year: 1994 }]);
      expect((await create({ name })).status).toBe(201);
      const target = `/collections/films/indexes/${encodeURIComponent(name)}`;
      expect((await get(target)).body).toEqual({ ...shown, name });
      expect((await filtered('year=1994')).body.total).toBe(1);
      expect((await app.call('DELETE', path + target)).status).toBe(200);
      expect((await get<object[]>('/indexes')).body).toEqual([]);
    },
  );

  test.each(["o'clock", 'a b', '"', 'ключ', 'constructor', 'a$b', '日本.語', '0.1'])(
    'may be over the field %s',
    async (field_name) => {
      const steps = field_name.split('.').reverse();
      const document = (value: unknown) => steps.reduce<unknown>((inner, step) => ({ [step]: inner }), value) as object;
      expect((await create({ field_name, index_type: 'string' })).status).toBe(201);
      await app.store('films', [
        { id: 'a', ...document('x') },
        { id: 'b', ...document('y') },
      ]);
      const found = await send(
        granary.url,
        'GET',
        `${path}/collections/films/data?${encodeURIComponent(field_name)}=y`,
      );
      expect(found.body).toMatchObject({ total: 1, records: [{ id: 'b' }] });
    },
  );

  test('long values are distinguished by their last character, in filters, orders and uniqueness', async () => {
    await create({ name: 'by_text', field_name: 'text', index_type: 'string', unique_constraint: true });
    const long = 'ä'.repeat(100_000);
    await app.store('films', [
      { id: 'a', text: `${long}b` },
      { id: 'b', text: `${long}a` },
      { id: 'c', text: long },
    ]);
    expect((await app.list('films', { find: { text: `${long}a` } })).body.records).toMatchObject([{ id: 'b' }]);
    expect((await app.list('films', { find: { text: { gt: `${long}a` } } })).body.records).toMatchObject([{ id: 'a' }]);
    const sorted = await app.list<{ id: string }>('films', { sort: ['-text'], select: ['id'] });
    expect(sorted.body.records.map(({ id }) => id)).toEqual(['a', 'b', 'c']);
    const refused = await app.call('POST', '/store', { root: `${app.appId}::films`, data: [{ text: long }] });
    expect(refused).toMatchObject({ status: 409, body: { code: 'UNIQUE_VIOLATION' } });
    expect((await app.store('films', [{ text: `${long}c` }])).status).toBe(202);
  });
});
