import { newTicket } from '@granary/shared/ids';
import { startFixture, type Fixture, type TestApp } from './support/query-fixture';

let fixture: Fixture;
let app: TestApp;

const trades = [
  '{"id":"1","market":"BTC","price":0.1,"size":1,"by":{"city":"Oslo"},"note":[]}',
  '{"id":"2","market":"BTC","price":0.20,"size":1.0,"by":{"city":"Rome"},"note":"b"}',
  '{"id":"3","market":"ETH","price":3,"size":null,"by":{"city":"Oslo"},"note":{"x":1}}',
  '{"id":"4","price":"7","size":2,"note":true}',
  '{"id":"5","market":null,"price":9007199254740993,"note":5}',
  '{"id":"6","market":"ETH","price":1,"size":2,"deleted":true}',
  '{"id":"7","market":"ETH","size":7}',
  '{"id":"8","market":"ETH","price":4,"size":7}',
];

beforeAll(async () => {
  fixture = await startFixture();
  app = await fixture.newApp();
  await app.createCollection('trades');
  await app.store('trades', trades);
});
afterAll(() => fixture.stop());

let made = 0;

interface Definition {
  name?: string;
  sources?: string[];
  refreshMode?: string;
  variables?: object;
  readAccess?: string;
  ticketId?: string;
}

const create = (query: unknown, more: Definition = {}) =>
  fixture.methods.createView({
    appId: app.appId,
    appNumber: app.number.toString(),
    name: more.name ?? `view${(made += 1)}`,
    queryJson: Buffer.from(JSON.stringify(query)),
    sourceCollections: more.sources ?? ['trades'],
    refreshMode: more.refreshMode ?? '',
    variablesJson: Buffer.from(more.variables === undefined ? '' : JSON.stringify(more.variables)),
    readAccess: more.readAccess ?? '',
    ticketId: more.ticketId ?? newTicket('j', app.number),
  });

/** The text of a view's answer, once it is built. */
async function built(query: unknown, more: Definition = {}): Promise<string> {
  const { name, ticketId } = await create(query, more);
  await app.completed(ticketId);
  return readText(name);
}

async function readText(name: string, query: Record<string, string> = {}): Promise<string> {
  const parameters = Object.entries(query).map(([parameter, value]) => ({ name: parameter, value }));
  return (
    await fixture.methods.readView({ appId: app.appId, name, parameters, mayReadPrivate: false })
  ).json.toString();
}

const recordsOf = (text: string): string => /^\{"records":\[(.*)\],"total"/s.exec(text)![1]!;

test('a view over documents holds their texts as they were stored, without deleted ones', async () => {
  const text = await built({ find: { price: { exists: true } }, sort_by: '-price' });
  // Descending: numbers, then strings.
  expect(recordsOf(text)).toBe([trades[4], trades[7], trades[2], trades[1], trades[0], trades[3]].join(','));
  expect(text).toMatch(/,"total":6,"page":1,"limit":100,"refreshed_at":"[^"]+Z","refresh_mode":"lazy"\}$/);
});

test('a selection keeps the order and the numbers of the documents', async () => {
  const text = await built({ where: { market: 'BTC' }, select: ['price', 'by.city'], orderBy: ['-by.city'], limit: 1 });
  expect(recordsOf(text)).toBe('{"price":0.20,"by":{"city":"Rome"}}');
});

test('aggregates are exact, in groups of which one is null', async () => {
  const text = await built({
    group_by: 'market',
    aggregate: {
      n: { $count: '*' },
      prices: { $count: 'price' },
      sizes: { $count_distinct: 'size' },
      sum: { $sum: 'price' },
      avg: { $avg: 'price' },
      min: { $min: 'price' },
      max: { $max: 'note' },
      first: { $first: 'note' },
      last: { $last: 'price' },
    },
    sort_by: { market: 'asc' },
  });
  expect(recordsOf(text)).toBe(
    [
      '{"market":"BTC","n":2,"prices":2,"sizes":1,"sum":0.3,"avg":0.15,"min":0.1,"max":[],"first":[],"last":0.20}',
      '{"market":"ETH","n":3,"prices":2,"sizes":1,"sum":7,"avg":3.5,"min":3,"max":{"x":1},"first":{"x":1},"last":4}',
      '{"market":null,"n":2,"prices":2,"sizes":1,"sum":9007199254740993,"avg":9007199254740993,"min":"7","max":true,"first":true,"last":9007199254740993}',
    ].join(','),
  );
});

test.each([
  [[1, 1, 2], '1.333333333333333'],
  [[2, 0, 0], '0.6666666666666667'],
  [['1e20', '1e20', 1], '66666666666666670000'],
  [['-2e-9', 0, 0], '-0.0000000006666666666666667'],
  [[1, -1], '0'],
  [['3e-300', '1e-300', '1e-300'], `0.${'0'.repeat(299)}1666666666666667`],
  [['1e300', '1e300', '1e300'], `1${'0'.repeat(300)}`],
])('the average of %j is %s', async (numbers, expected) => {
  const name = `numbers${(made += 1)}`;
  await app.createCollection(name);
  await app.store(
    name,
    numbers.map((number) => `{"x":${number}}`),
  );
  const text = await built({ aggregate: { avg: { $avg: 'x' } } }, { sources: [name] });
  expect(recordsOf(text)).toBe(`{"avg":${expected}}`);
});

test('without groups there is one row, also over nothing', async () => {
  const aggregate = Object.fromEntries(
    ['$sum', '$avg', '$min', '$max', '$count', '$count_distinct', '$first', '$last'].map((name) => [
      name.slice(1),
      { [name]: 'price' },
    ]),
  );
  const text = await built({ find: { market: 'none' }, aggregate });
  expect(recordsOf(text)).toBe(
    '{"sum":0,"avg":null,"min":null,"max":null,"count":0,"count_distinct":0,"first":null,"last":null}',
  );
});

test('groups by nested fields are nested objects, a selection leaves the aggregates, and they can be sorted by', async () => {
  const query = {
    find: { by: { exists: true } },
    group_by: ['by.city', 'market'],
    aggregate: { n: { $count: '*' } },
    select: ['by.city'],
    sort_by: ['-n', 'by.city'],
    limit: 2,
  };
  expect(recordsOf(await built(query))).toBe('{"by":{"city":"Oslo"},"n":1},{"by":{"city":"Oslo"},"n":1}');
});

test('minimum and maximum of a date go by the instant', async () => {
  await app.createCollection('dated', { fields: { at: { type: 'date' } } });
  await app.store('dated', [
    '{"at":"2024-01-01T00:00:00+02:00"}',
    '{"at":"2023-12-31T23:00:00Z"}',
    '{"at":"2024-01-01T00:00:00Z"}',
  ]);
  const text = await built(
    { aggregate: { min: { $min: 'at' }, max: { $max: 'at' }, n: { $count_distinct: 'at' } } },
    { sources: ['dated'] },
  );
  expect(recordsOf(text)).toBe('{"min":"2024-01-01T00:00:00+02:00","max":"2024-01-01T00:00:00Z","n":3}');
});

test('a view is read with filter, selection, order, page and its variables', async () => {
  const variables = { market: 'market', least: 'sum.$gte' };
  await built({ group_by: 'market', aggregate: { sum: { $sum: 'price' } } }, { name: 'sums', variables });
  expect(recordsOf(await readText('sums', { market: 'BTC' }))).toBe('{"market":"BTC","sum":0.3}');
  expect(recordsOf(await readText('sums', { least: '1', sort: '-sum', limit: '1', offset: '1' }))).toBe(
    '{"market":"ETH","sum":7}',
  );
  expect(recordsOf(await readText('sums', { filter: '{"sum":{"lt":5}}', select: 'sum' }))).toBe('{"sum":0.3}');
  expect(await app.list({ root: `${app.appId}::sums`, find: { sum: 7 } })).toMatchObject({
    records: [{ market: 'ETH' }],
    total: 1,
  });
  await expect(readText('sums', { toString: '1' })).rejects.toMatchObject({ code: 'INVALID_ARGUMENT' });
  await expect(readText('sums', { filter: '{' })).rejects.toMatchObject({ code: 'INVALID_ARGUMENT' });
});

test('a lazy view shows what was there when it was filled, until it is refreshed; nothing is left of the old rows', async () => {
  await app.createCollection('growing');
  await app.store('growing', ['{"id":"1"}']);
  expect(recordsOf(await built({}, { name: 'grown', sources: ['growing'] }))).toBe('{"id":"1"}');
  await app.store('growing', ['{"id":"2"}']);
  expect(recordsOf(await readText('grown'))).toBe('{"id":"1"}');
  const before = await tables();
  const { ticketId } = await fixture.methods.refreshView({
    appId: app.appId,
    name: 'grown',
    ticketId: newTicket('j', app.number),
  });
  await app.completed(ticketId);
  expect(recordsOf(await readText('grown'))).toBe('{"id":"1"},{"id":"2"}');
  expect(await tables()).toBe(before);
  await fixture.methods.deleteView({ appId: app.appId, name: 'grown', ticketId: '' });
  expect(await tables()).toBe(before - 1);
  await expect(readText('grown')).rejects.toMatchObject({ reason: 'VIEW_NOT_FOUND' });
});

async function tables(): Promise<number> {
  const found = await fixture.pool.query(`select from pg_class where relname ~ '^v_' and relkind = 'r'`);
  return found.rowCount!;
}

test('a view is read while it is refreshed again and again', async () => {
  await built({}, { name: 'busy' });
  const tickets = await Promise.all(
    Array.from({ length: 8 }, () =>
      fixture.methods.refreshView({ appId: app.appId, name: 'busy', ticketId: newTicket('j', app.number) }),
    ),
  );
  let done = false;
  const completed = Promise.all(tickets.map(({ ticketId }) => app.completed(ticketId))).finally(() => (done = true));
  while (!done) expect(await readText('busy')).toContain('"total":7');
  await completed;
});

test('the same call again, whose answer was lost, gives the same ticket', async () => {
  const ticketId = newTicket('j', app.number);
  const [first, again] = [await create({}, { name: 'twice', ticketId }), await create({}, { name: 'twice', ticketId })];
  expect(again).toEqual(first);
  await expect(create({}, { name: 'twice' })).rejects.toMatchObject({
    code: 'ALREADY_EXISTS',
    message: expect.stringContaining('already exists') as string,
  });
  await expect(create({}, { name: 'trades' })).rejects.toMatchObject({ code: 'ALREADY_EXISTS' });
});

test('views are listed and described', async () => {
  const variables = { m: 'market' };
  await built({ find: {} }, { name: 'described', variables });
  const view = await fixture.methods.getView({ appId: app.appId, name: 'described', ticketId: '' });
  expect(view).toMatchObject({
    name: 'described',
    status: 'ready',
    rowCount: '7',
    refreshMode: 'lazy',
    sourceCollections: ['trades'],
  });
  expect([view.queryJson.toString(), view.variablesJson.toString()]).toEqual(['{"find":{}}', '{"m":"market"}']);
  const { views } = await fixture.methods.listViews({ appId: app.appId });
  expect(views.map(({ name }) => name)).toContain('described');
});

test('a private view is not read without a key', async () => {
  const { name } = await create({}, { readAccess: 'private' });
  await expect(readText(name)).rejects.toMatchObject({ code: 'UNAUTHENTICATED' });
});

test.each([
  [{ having: {} }, {}, 'INVALID_QUERY'],
  [{ find: { a: { $near: 1 } } }, {}, 'INVALID_QUERY'],
  [{ find: {}, where: {} }, {}, 'INVALID_QUERY'],
  [{ aggregate: { x: { $median: 'price' } } }, {}, 'INVALID_QUERY'],
  [{ aggregate: { x: { $sum: '*' } } }, {}, 'INVALID_QUERY'],
  [{ aggregate: { 'a.b': { $sum: 'price' } } }, {}, 'INVALID_QUERY'],
  [{ group_by: 'x', aggregate: { x: { $sum: 'price' } } }, {}, 'INVALID_QUERY'],
  [{ group_by: ['x', 'x.y'] }, {}, 'INVALID_QUERY'],
  [{ group_by: 'x', sort_by: 'y' }, {}, 'INVALID_QUERY'],
  [{ sort_by: { a: 'up' } }, {}, 'INVALID_QUERY'],
  [{ limit: 0 }, {}, 'INVALID_QUERY'],
  [{ base: 'other' }, {}, 'INVALID_QUERY'],
  [[], {}, 'INVALID_QUERY'],
  [{}, { name: 'a b' }, 'VALIDATION_FAILED'],
  [{}, { variables: { limit: 'a' } }, 'INVALID_QUERY'],
  [{}, { variables: { a: 1 } }, 'INVALID_QUERY'],
  [{}, { variables: { a: 'b.$near' } }, 'INVALID_QUERY'],
  [{}, { refreshMode: 'eager' }, 'INVALID_QUERY'],
  [{}, { sources: [] }, 'INVALID_QUERY'],
  [{}, { sources: ['none'] }, 'COLLECTION_NOT_FOUND'],
  [{ limit: 10_001 }, {}, 'LIMIT_EXCEEDED'],
  [
    { join: { other: { collection: 'trades', on: { id: '$data.a' } } } },
    { refreshMode: 'live', sources: ['trades'] },
    'INVALID_QUERY',
  ],
  [{ find: { a: { $search: 'x' } } }, { refreshMode: 'live' }, 'INVALID_QUERY'],
  [{ find: { $or: [{ a: { inCountry: 'DE' } }] } }, { refreshMode: 'live' }, 'INVALID_QUERY'],
] as Array<[unknown, Definition, string]>)(
  'the view %j %j is refused when it is made: %s',
  async (query, more, reason) => {
    await expect(create(query, more)).rejects.toMatchObject({ reason });
  },
);
