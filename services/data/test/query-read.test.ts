import { newTicket } from '@granary/shared/ids';
import { startFixture, type Fixture, type TestApp } from './support/query-fixture';

let fixture: Fixture;
let app: TestApp;

const films = [
  '{"id":"1","title":"Heat","year":1995,"rating":8.30,"tags":["crime","drama"],"seen":true,"made":{"by":"Mann"},"at":"1995-12-15T00:00:00Z"}',
  '{"id":"2","title":"Ronin","year":1998,"rating":7.2,"tags":["crime"],"seen":false,"made":{"by":"Frankenheimer"},"at":"1998-09-25T02:00:00+02:00"}',
  '{"id":"3","title":"1995","year":"1995","rating":null,"made":{"by":"Nobody"}}',
  '{"id":"4","title":"Big","rating":12345678901234567890.123456789, "made":{}}',
];

beforeAll(async () => {
  fixture = await startFixture();
  app = await fixture.newApp();
  await app.createCollection('films', { fields: { at: { type: 'date' } } });
  await app.store('films', films);
  for (const [field, type] of [
    ['title', 'string'],
    ['rating', 'number'],
    ['seen', 'boolean'],
    ['year'],
    ['at'],
    ['made.by'],
    ['limit'],
  ] as const) {
    await app.createIndex('films', field, type);
  }
});
afterAll(() => fixture.stop());

const root = (collection: string): string => `${app.appId}::${collection}`;
const list = async (body: object) => (await app.list({ root: root('films'), ...body })).records.map(({ id }) => id);
const read = async (query: Record<string, string>) =>
  (await app.read('readCollection', 'films', query)).records.map(({ id }) => id);
const textOf = async (body: object): Promise<string> =>
  (await fixture.methods.listDocuments({ appId: app.appId, body: Buffer.from(JSON.stringify(body)) })).json.toString();

test('a list gives the texts as they were stored, with the total before the page', async () => {
  const text = await textOf({ root: root('films'), limit: 1, offset: 3 });
  expect(text).toBe(`{"records":[${films[3]}],"total":4,"page":4,"limit":1}`);
});

test('a selection keeps numbers as they were written', async () => {
  const text = await textOf({
    root: root('films'),
    find: { rating: { gt: 8 } },
    select: { rating: true, made: { by: true } },
  });
  expect(text).toContain('{"rating":8.30,"made":{"by":"Mann"}}');
  expect(text).toContain('{"rating":12345678901234567890.123456789}');
});

test('numbers are compared without rounding', async () => {
  const body = `{"root":"${root('films')}","find":{"rating":12345678901234567890.123456789}}`;
  const near = body.replace('789}}', '788}}');
  const total = async (text: string) =>
    (
      JSON.parse(
        (await fixture.methods.listDocuments({ appId: app.appId, body: Buffer.from(text) })).json.toString(),
      ) as { total: number }
    ).total;
  expect([await total(body), await total(near)]).toEqual([1, 0]);
});

test('sortBy goes in its direction, and sort in that of each field', async () => {
  expect(await list({ sortBy: 'rating', sortDirection: 'descending' })).toEqual(['4', '1', '2', '3']);
  expect(await list({ sort: ['-made.by', 'id'] })).toEqual(['3', '1', '2', '4']);
});

test('the latest versions are listed, all of them on request, and soft-deleted documents say so', async () => {
  await app.createCollection('versions');
  for (const text of ['{"id":"a","v":1}', '{"id":"b","v":1}', '{"id":"a","v":2,"deleted":true}'])
    await app.store('versions', [text]);
  const latest = await app.list({ root: root('versions') });
  expect(latest.records).toEqual([
    { id: 'a', v: 2, deleted: true },
    { id: 'b', v: 1 },
  ]);
  const history = await app.list({ root: root('versions'), include_history: true, limit: 2 });
  expect(history).toMatchObject({
    records: [
      { id: 'a', v: 1 },
      { id: 'a', v: 2 },
    ],
    total: 3,
  });
  const open = await app.read('readCollection', 'versions', {});
  expect(open).toMatchObject({ records: [{ id: 'b', v: 1 }], total: 1 });
});

test('a total that was not asked for is null, unless it is known anyway', async () => {
  const many = { root: root('films'), count: 'none', limit: 1 };
  expect((await app.list({ ...many, find: { id: { in: ['1', '2'] } } })).total).toBeNull();
  expect((await app.list(many)).total).toBe(4);
  expect((await app.list({ ...many, limit: 5, find: { id: '1' } })).total).toBe(1);
});

test.each([
  [{ find: [] }, 'INVALID_ARGUMENT', 'INVALID_QUERY', 'find'],
  [{ find: { a: { gt: 1, b: 2 } } }, 'INVALID_ARGUMENT', 'INVALID_QUERY', 'find.a'],
  [{ find: { a: { $near: 1 } } }, 'INVALID_ARGUMENT', 'INVALID_QUERY', 'find.a.$near'],
  [{ find: { in: ['x'] } }, 'INVALID_ARGUMENT', 'INVALID_QUERY', 'find.in'],
  [{ find: { 'a.$gt.b': 1 } }, 'INVALID_ARGUMENT', 'INVALID_QUERY', 'find.a.$gt.b'],
  [{ find: { 'a.-1': 1 } }, 'INVALID_ARGUMENT', 'INVALID_QUERY', 'find.a.-1'],
  [{ find: { a: { gt: null } } }, 'INVALID_ARGUMENT', 'INVALID_QUERY', 'find.a.gt'],
  [{ find: { or: {} } }, 'INVALID_ARGUMENT', 'INVALID_QUERY', 'find.or'],
  [{ find: { a: { exists: 1 } } }, 'INVALID_ARGUMENT', 'INVALID_QUERY', 'find.a.exists'],
  [{ find: { a: { in: Array(1_001).fill(1) } } }, 'INVALID_ARGUMENT', 'LIMIT_EXCEEDED', 'find.a.in'],
  [
    { find: { and: Array.from({ length: 257 }, (_, at) => ({ a: at })) } },
    'INVALID_ARGUMENT',
    'LIMIT_EXCEEDED',
    'find.and',
  ],
  [{ find: nested(17) }, 'INVALID_ARGUMENT', 'LIMIT_EXCEEDED', 'find'],
  [{ find: { a: { regExpMatches: '(' } } }, 'INVALID_ARGUMENT', 'INVALID_QUERY', 'find.a.regExpMatches'],
  [{ find: { a: { resolve: {}, model: 'nowhere' } } }, 'INVALID_ARGUMENT', 'INVALID_QUERY', 'find.a.model'],
  [{ cursor: 'x' }, 'INVALID_ARGUMENT', 'INVALID_CURSOR', 'cursor'],
  [{ cursor: 1 }, 'INVALID_ARGUMENT', 'INVALID_CURSOR', 'cursor'],
  [{ cursor: 'x', offset: 1 }, 'INVALID_ARGUMENT', 'INVALID_QUERY', 'offset'],
  [{ limit: '10' }, 'INVALID_ARGUMENT', 'INVALID_QUERY', 'limit'],
  [{ limit: 0 }, 'INVALID_ARGUMENT', 'INVALID_QUERY', 'limit'],
  [{ limit: 10_001 }, 'INVALID_ARGUMENT', 'LIMIT_EXCEEDED', 'limit'],
  [{ offset: 1_000_001 }, 'INVALID_ARGUMENT', 'LIMIT_EXCEEDED', 'offset'],
  [{ limit: 1.5 }, 'INVALID_ARGUMENT', 'INVALID_QUERY', 'limit'],
  [{ select: { a: 1 } }, 'INVALID_ARGUMENT', 'INVALID_QUERY', 'select.a'],
  [{ sort: [1] }, 'INVALID_ARGUMENT', 'INVALID_QUERY', 'sort'],
  [{ sortDirection: 'up' }, 'INVALID_ARGUMENT', 'INVALID_QUERY', 'sortDirection'],
  [{ filter: {} }, 'INVALID_ARGUMENT', 'INVALID_QUERY', 'filter'],
  [{ root: 'films' }, 'INVALID_ARGUMENT', 'INVALID_QUERY', 'root'],
  [{ root: 'other::films' }, 'PERMISSION_DENIED', 'FORBIDDEN', undefined],
])('the list %j is refused: %s %s', async (body, code, reason, path) => {
  const refused = app.list({ root: root('films'), ...body });
  await expect(refused).rejects.toMatchObject({ code, reason });
  await refused.catch((error: { details: object }) =>
    expect(Object.keys(error.details)).toEqual(path === undefined ? [] : [path]),
  );
});

function nested(levels: number): object {
  return levels === 0 ? {} : { and: [nested(levels - 2 < 0 ? 0 : levels - 2)] };
}

test('a body that is no JSON is malformed', async () => {
  const malformed = fixture.methods.listDocuments({ appId: app.appId, body: Buffer.from('{"root":') });
  await expect(malformed).rejects.toMatchObject({ code: 'INVALID_ARGUMENT', reason: 'MALFORMED_JSON' });
});

test('a collection that is not there, or not of this app, is not found', async () => {
  const other = await fixture.newApp();
  await expect(app.list({ root: root('none') })).rejects.toMatchObject({ reason: 'COLLECTION_NOT_FOUND' });
  await expect(other.read('readCollection', 'films', {})).rejects.toMatchObject({ reason: 'COLLECTION_NOT_FOUND' });
});

test.each([
  [{ rating: '7.20' }, ['2']],
  [{ title: '1995' }, ['3']],
  [{ year: '1995' }, ['1', '3']],
  [{ 'year.$ne': '1995' }, ['2', '4']],
  [{ seen: 'true' }, ['1']],
  [{ at: '1998-09-25T00:00:00Z' }, ['2']],
  [{ 'at.$lt': '1998-09-25T00:00:00Z' }, ['1']],
  [{ 'rating.$gte': '8' }, ['1', '4']],
  [{ 'rating.$between': '7,8' }, ['2']],
  [{ 'rating.$in': '7.2,8.3' }, ['1', '2']],
  [{ 'rating.$exists': 'false' }, []],
  [{ 'made.by': 'Mann' }, ['1']],
  [{ 'title.$contains': 'i' }, ['2', '4']],
  [{ id: '4' }, ['4']],
  [{ sort: '-rating', limit: '2' }, ['4', '1']],
  [{ 'limit.$eq': '3' }, []],
] as Array<[Record<string, string>, string[]]>)('the parameters %j find %j', async (query, ids) => {
  expect(await read(query)).toEqual(ids);
});

test.each([
  [{ toString: '1' }, 'FIELD_NOT_INDEXED'],
  [{ tags: 'crime' }, 'FIELD_NOT_INDEXED'],
  [{ sort: 'tags' }, 'FIELD_NOT_INDEXED'],
  [{ rating: 'high' }, 'INVALID_QUERY'],
  [{ seen: 'yes' }, 'INVALID_QUERY'],
  [{ 'rating.$near': '1' }, 'INVALID_QUERY'],
  [{ title: 'a\0b' }, 'VALIDATION_FAILED'],
  [{ limit: 'x' }, 'INVALID_QUERY'],
  [{ count: 'some' }, 'INVALID_QUERY'],
  [{ cursor: 'x' }, 'INVALID_CURSOR'],
  [{ 'title.$regex': '(' }, 'INVALID_QUERY'],
] as unknown as Array<[Record<string, string>, string]>)('the parameters %j are refused: %s', async (query, reason) => {
  await expect(read(query)).rejects.toMatchObject({ reason });
});

test('a field that is not indexed is refused with the list of those that are', async () => {
  await expect(read({ tags: 'crime' })).rejects.toMatchObject({
    details: {
      tags: [expect.any(String)],
      indexed_fields: ['id', 'title', 'rating', 'seen', 'year', 'at', 'made.by', 'limit'],
    },
  });
});

test('a private collection is not read without a key', async () => {
  await app.createCollection('secret', undefined, 'private');
  await expect(app.read('readCollection', 'secret', {})).rejects.toMatchObject({ code: 'UNAUTHENTICATED' });
  const request = { appId: app.appId, name: 'secret', parameters: [], mayReadPrivate: true };
  expect((await fixture.methods.readCollection(request)).json.toString()).toContain('"records":[]');
});

test('a result over 32 MiB is refused, one below is not', async () => {
  await app.createCollection('large');
  const filling = 'x'.repeat(1_000_000);
  for (let at = 10; at < 46; at += 4) {
    const data = [0, 1, 2, 3].map((more) => `{"id":"${at + more}","filling":"${filling}"}`).join(',');
    const body = Buffer.from(`{"root":"${root('large')}","data":[${data}]}`);
    const idempotency = { caller: '', method: '', path: '', key: '', contentHash: Buffer.alloc(0) };
    const ticketId = newTicket('c', app.number);
    await fixture.methods.store({ appId: app.appId, appNumber: app.number.toString(), ticketId, body, idempotency });
  }
  await expect(app.list({ root: root('large'), sort: ['-id'] })).rejects.toMatchObject({ reason: 'RESULT_TOO_LARGE' });
  const page = await app.list({ root: root('large'), sort: ['-id'], limit: 30 });
  expect(page.records.map(({ id }) => id)).toEqual(Array.from({ length: 30 }, (_, at) => String(45 - at)));
});

test('a read goes on when an index is dropped under it', async () => {
  await app.createCollection('shaky');
  await app.store('shaky', ['{"id":"1","a":1}']);
  let dropping = true;
  const flicker = (async () => {
    while (dropping) {
      await app.createIndex('shaky', 'a');
      await fixture.methods.deleteIndex({ appId: app.appId, collection: 'shaky', name: 'shaky_a', ticketId: '' });
    }
  })();
  for (let round = 0; round < 200; round += 1) {
    expect((await app.list({ root: root('shaky'), find: { a: 1 }, sort: ['a'] })).records).toHaveLength(1);
  }
  dropping = false;
  await flicker;
});
