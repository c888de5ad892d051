import { startFixture, type Fixture, type Page, type TestApp } from './support/query-fixture';

let fixture: Fixture;
let app: TestApp;
beforeAll(async () => {
  fixture = await startFixture();
  app = await fixture.newApp();
  for (const collection of ['films', 'others']) {
    await app.createCollection(collection);
    const texts = Array.from({ length: 90 }, (_, at) =>
      JSON.stringify({ id: `f${at}`, year: at % 7, title: `t${at}` }),
    );
    await app.store(collection, texts);
    await app.createIndex(collection, 'year');
  }
});
afterAll(() => fixture.stop());

const ids = (page: Page): unknown[] => page.records.map(({ id }) => id);
const cursorOf = (page: Page): string => page['next_cursor'] as string;

/** Reads page by page, until none follows. */
async function walk(read: (cursor?: string) => Promise<Page>, between?: () => Promise<void>): Promise<unknown[]> {
  const found: unknown[] = [];
  let cursor: string | undefined;
  for (let pages = 0; pages < 200; pages += 1) {
    const page = await read(cursor);
    found.push(...ids(page));
    if (!('next_cursor' in page)) return found;
    cursor = cursorOf(page);
    await between?.();
  }
  throw new Error('the walk does not end');
}

const list = (body: object) => (cursor?: string) =>
  app.list({ root: `${app.appId}::films`, limit: 8, ...body, ...(cursor === undefined ? {} : { cursor }) });

test.each([{}, { sort: ['year'] }, { sort: ['-year', 'title'] }, { sortBy: 'title', sortDirection: 'descending' }])(
  'the pages of %j by cursor are those by offset, and only the last has no cursor',
  async (order) => {
    const whole = ids(await app.list({ root: `${app.appId}::films`, limit: 1_000, ...order }));
    expect(await walk(list(order))).toEqual(whole);
    expect(await walk(list({ ...order, limit: 90 }))).toEqual(whole);
    expect(cursorOf(await list({ ...order, limit: 90 })())).toBeUndefined();
  },
);

test('a page by cursor has no number, and a total only where it is asked for or known', async () => {
  const first = await list({ find: { year: { lt: 3 } }, count: 'none' })();
  expect(first).toMatchObject({ page: 1, total: null });
  const next = (more: object) => list({ find: { year: { lt: 3 } }, ...more })(cursorOf(first));
  expect(await next({ count: 'none' })).toMatchObject({ page: null, total: null });
  expect(await next({})).toMatchObject({ page: null, total: 39 });
  expect(await next({ limit: 3, select: ['id'] })).toMatchObject({ limit: 3, records: [{}, {}, {}] });
  expect(await list({})(cursorOf(await list({})()))).toMatchObject({ page: null, total: 90 });
});

test('old versions, endpoint 3, views and predefined queries have cursors too', async () => {
  await app.createCollection('versions');
  for (const v of [1, 2, 3]) {
    await app.store(
      'versions',
      Array.from({ length: 5 }, (_, at) => JSON.stringify({ id: `d${at}`, v })),
    );
  }
  const history = { root: `${app.appId}::versions`, include_history: true, sort: ['-v'] };
  const versions = async (limit: number, cursor?: string) => {
    const page = await app.list({ ...history, limit, ...(cursor === undefined ? {} : { cursor }) });
    return { ...page, records: page.records.map(({ id, v }) => ({ id: `${String(id)} ${String(v)}` })) };
  };
  expect(await walk((cursor) => versions(4, cursor))).toEqual(ids(await versions(100)));

  const read = (method: 'readCollection' | 'readView' | 'runQuery', name: string, query: Record<string, string>) =>
    walk((cursor) => app.read(method, name, { ...query, limit: '7', ...(cursor === undefined ? {} : { cursor }) }));
  const by = (order: object) => app.list({ root: `${app.appId}::films`, limit: 1_000, ...order }).then(ids);
  expect(await read('readCollection', 'films', { sort: '-year' })).toEqual(await by({ sort: ['-year'] }));

  const text = (value: unknown) => Buffer.from(JSON.stringify(value));
  const view = await fixture.methods.createView({
    appId: app.appId,
    appNumber: app.number.toString(),
    name: 'seen',
    refreshMode: 'lazy',
    readAccess: 'public',
    queryJson: text({ sort_by: ['-title'] }),
    sourceCollections: ['films'],
    variablesJson: text({}),
    ticketId: '',
  });
  await app.completed(view.ticketId);
  expect(await read('readView', 'seen', {})).toEqual(await by({ sort: ['-title'] }));
  expect(await read('readView', 'seen', { sort: 'year' })).toHaveLength(90);

  await fixture.methods.createQuery({
    appId: app.appId,
    name: 'early',
    sourceCollection: 'films',
    readAccess: 'public',
    description: '',
    version: '',
    baseQueryJson: text({ find: { year: { lt: 3 } }, sort: ['title'] }),
    parametersJson: text([]),
    exampleRequestJson: Buffer.alloc(0),
    exampleResponseJson: Buffer.alloc(0),
  });
  expect(await read('runQuery', 'early', {})).toEqual(await by({ find: { year: { lt: 3 } }, sort: ['title'] }));
});

test('a walk gives each document that stays once, however many others come and go', async () => {
  const own = await fixture.newApp();
  await own.createCollection('busy');
  const texts = Array.from({ length: 200 }, (_, at) =>
    JSON.stringify({ id: `s${at}`, n: at % 2 ? at % 10 : [at % 3] }),
  );
  await own.store('busy', texts);
  await own.createIndex('busy', 'n');
  for (const sort of ['n', '-n']) {
    let round = 0;
    const found = await walk(
      (cursor) => own.read('readCollection', 'busy', { sort, limit: '9', ...(cursor === undefined ? {} : { cursor }) }),
      async () => {
        round += 1;
        const passing = [0, 1, 2].map((at) => `passing${(round + at) % 5}`);
        await own.store(
          'busy',
          passing.map((id, at) => JSON.stringify({ id, n: (round * 7 + at) % 10, deleted: at > 0 })),
        );
      },
    );
    const stayed = found.filter((id) => String(id).startsWith('s'));
    expect(stayed).toHaveLength(200);
    expect(new Set(stayed).size).toBe(200);
  }
});

/** Documents whose titles are longer than a cursor may be, in the order of their ids. */
const longTitle = (number: number): string => `${'t'.repeat(10_000)}${Math.floor(number / 2)}`;
const longTexts = (v = 1): string[] =>
  Array.from({ length: 9 }, (_, at) => JSON.stringify({ id: `l${at}`, title: longTitle(at), n: at % 3, v }));

test.each([['title'], ['-title'], ['n', '-title']])(
  'pages in the order of %s go on behind records whose sort values are too long for a cursor',
  async (...sort) => {
    const own = await fixture.newApp();
    await own.createCollection('long');
    await own.store('long', longTexts());
    const read = (more: object) => own.list({ root: `${own.appId}::long`, sort, select: ['id'], ...more });
    const whole = ids(await read({ limit: 100 }));
    expect(whole).toHaveLength(9);
    const cursors: string[] = [];
    const walked = await walk(async (cursor) => {
      if (cursor !== undefined) cursors.push(cursor);
      return read({ limit: 2, ...(cursor === undefined ? {} : { cursor }) });
    });
    expect(walked).toEqual(whole);
    expect(cursors).toHaveLength(4);
    expect(Math.max(...cursors.map(({ length }) => length))).toBeLessThan(200);
  },
);

test('old versions with long sort values have cursors too', async () => {
  const own = await fixture.newApp();
  await own.createCollection('long');
  await own.store('long', longTexts(1));
  await own.store('long', longTexts(2));
  const read = async (more: object) => {
    const page = await own.list({ root: `${own.appId}::long`, include_history: true, sort: ['-title'], ...more });
    return { ...page, records: page.records.map((record) => ({ id: `${String(record.id)} ${String(record['v'])}` })) };
  };
  const whole = ids(await read({ limit: 100 }));
  expect(whole).toHaveLength(18);
  expect(await walk((cursor) => read({ limit: 1, ...(cursor === undefined ? {} : { cursor }) }))).toEqual(whole);
});

test('a cursor without the sort values of its record is refused once the record has others, or none that match', async () => {
  const own = await fixture.newApp();
  await own.createCollection('long');
  await own.store('long', longTexts());
  const query = { root: `${own.appId}::long`, find: { n: { lt: 5 } }, sort: ['title'], limit: 1 };
  const first = await own.list(query);
  const cursor = cursorOf(first);
  const next = (more: object = {}) => own.list({ ...query, cursor, ...more });
  const change = (text: object) => own.store('long', [JSON.stringify({ id: 'l0', ...text })]);
  expect(ids(await next())).toEqual(['l1']);
  // Members that the record is not sorted by may change.
  await change({ title: longTitle(0), n: 4 });
  expect(ids(await next())).toEqual(['l1']);
  for (const text of [
    { title: longTitle(0), n: 6 },
    { title: longTitle(2), n: 1 },
    { title: 'short', n: 1 },
  ]) {
    await change(text);
    await expect(next()).rejects.toMatchObject({ code: 'INVALID_ARGUMENT', reason: 'INVALID_CURSOR' });
  }
  await change({ title: longTitle(0), n: 0 });
  expect(ids(await next())).toEqual(['l1']);
  await expect(next({ find: { n: { lt: 4 } } })).rejects.toMatchObject({ reason: 'INVALID_CURSOR' });
});

test('a cursor is good for the query that it came with only, unaltered', async () => {
  const query = { find: { year: { lt: 3 }, title: { ne: 'x' } }, sort: ['year'] };
  const cursor = cursorOf(await list(query)());
  const again = await list({ ...query, find: { title: { ne: 'x' }, year: { lt: 3 } } })(cursor);
  expect(again.records).toHaveLength(8);
  const altered = Buffer.from(cursor, 'base64url');
  altered[altered.length - 3]! ^= 1;
  const refused: Array<[object, string]> = [
    [{ ...query, find: {} }, cursor],
    [{ ...query, find: { year: { lt: 4 }, title: { ne: 'x' } } }, cursor],
    [{ ...query, sort: ['-year'] }, cursor],
    [{ ...query, sort: ['year', 'title'] }, cursor],
    [{ ...query, include_history: true }, cursor],
    [{ ...query, root: `${app.appId}::others` }, cursor],
    ...['', ' ', cursor + 'A', cursor.slice(1), `${cursor}=`, altered.toString('base64url'), 'x'.repeat(20_000)].map(
      (text): [object, string] => [query, text],
    ),
  ];
  for (const [body, text] of refused) {
    await expect(list(body)(text)).rejects.toMatchObject({ code: 'INVALID_ARGUMENT', reason: 'INVALID_CURSOR' });
  }
  await expect(list({ ...query, offset: 8 })(cursor)).rejects.toMatchObject({ reason: 'INVALID_QUERY' });
});

test('a cursor of a view ends with the rows that it was given for', async () => {
  const text = (value: unknown) => Buffer.from(JSON.stringify(value));
  const view = await fixture.methods.createView({
    appId: app.appId,
    appNumber: app.number.toString(),
    name: 'anew',
    refreshMode: 'lazy',
    readAccess: 'public',
    queryJson: text({}),
    sourceCollections: ['films'],
    variablesJson: text({}),
    ticketId: '',
  });
  await app.completed(view.ticketId);
  const cursor = cursorOf(await app.read('readView', 'anew', { limit: '5' }));
  const refreshed = await fixture.methods.refreshView({ appId: app.appId, name: 'anew', ticketId: '' });
  await app.completed(refreshed.ticketId);
  await expect(app.read('readView', 'anew', { limit: '5', cursor })).rejects.toMatchObject({
    reason: 'INVALID_CURSOR',
  });
});
