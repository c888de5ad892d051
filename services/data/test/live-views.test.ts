import { newTicket } from '@granary/shared/ids';
import { eventually } from '@granary/testing/eventually';
import { log, noIdempotency } from './support/data-service';
import { AfterPlan } from '../src/commit/after-plan';
import { purgeExpired } from '../src/usage/retention-purge';
import { liveViewRows } from '../src/views/live/live-rows';
import { startFixture, type Fixture, type TestApp } from './support/query-fixture';

let fixture: Fixture;
let app: TestApp;
beforeAll(async () => {
  fixture = await startFixture();
});
afterAll(() => fixture.stop());
beforeEach(async () => {
  app = await fixture.newApp();
  await app.createCollection('docs');
});

async function create(
  name: string,
  query: object,
  refreshMode = 'live',
  variables: object = {},
  keepsChanges = false,
): Promise<void> {
  const { ticketId } = await fixture.methods.createView({
    appId: app.appId,
    appNumber: app.number.toString(),
    name,
    queryJson: Buffer.from(JSON.stringify(query)),
    sourceCollections: ['docs'],
    refreshMode,
    variablesJson: Buffer.from(JSON.stringify(variables)),
    readAccess: '',
    keepsChanges,
    ticketId: newTicket('j', app.number),
  });
  await app.completed(ticketId);
}
const store = (...documents: object[]) =>
  app.store(
    'docs',
    documents.map((document) => JSON.stringify(document)),
  );
const records = async (name: string, query: Record<string, string> = {}) =>
  (await app.read('readView', name, query)).records;

const details = (name: string) => fixture.methods.getView({ appId: app.appId, name, ticketId: '' });
const tableOf = async (name: string): Promise<string> => {
  const found = await fixture.pool.query<{ number: string }>(
    `select table_number::text as number from view where app_number = ${app.number} and name = $1`,
    [name],
  );
  return `a_${app.number}.v_${found.rows[0]!.number}`;
};
const totals = { group_by: ['g'], aggregate: { n: { $count: '*' }, s: { $sum: 'n' }, m: { $avg: 'n' } } };

test('a grouped view has each write when that is acknowledged', async () => {
  await store({ id: 'a', g: 'x', n: 1 }, { id: 'b', g: 'x', n: 2.5 });
  await create('sums', totals);
  expect(await records('sums')).toEqual([{ g: 'x', n: 2, s: 3.5, m: 1.75 }]);
  await store({ id: 'c', g: 'y', n: 'text' });
  await store({ id: 'a', g: 'y', n: 4 });
  expect(await records('sums')).toEqual([
    { g: 'x', n: 1, s: 2.5, m: 2.5 },
    { g: 'y', n: 2, s: 4, m: 4 },
  ]);
  await store({ id: 'b', g: 'x', deleted: true });
  expect(await records('sums')).toEqual([{ g: 'y', n: 2, s: 4, m: 4 }]);
});

test('a view of documents has those that match, what is selected of them, and its sort and limit at each read', async () => {
  await create('top', { find: { n: { $gte: 2 } }, select: ['id', 'o.x'], sort_by: ['-o.x'], limit: 2 });
  await store(...[1, 2, 3, 4].map((n) => ({ id: `d${n}`, n, o: { x: n, y: 1 }, big: 'x' })));
  expect(await records('top')).toEqual([
    { id: 'd4', o: { x: 4 } },
    { id: 'd3', o: { x: 3 } },
  ]);
  await store({ id: 'd4', n: 0, o: { x: 9 } });
  expect(await records('top')).toEqual([
    { id: 'd3', o: { x: 3 } },
    { id: 'd2', o: { x: 2 } },
  ]);
  expect(await records('top', { filter: '{"o.x":2}' })).toEqual([{ id: 'd2', o: { x: 2 } }]);
  expect((await app.read('readView', 'top', {})).total).toBe(2);
});

test('documents of one instant, however it is written, are limited in the order of their ids', async () => {
  await app.createIndex('docs', 'd', 'date');
  const [early, late] = ['2024-01-01T00:00:00Z', '2024-01-01T01:00:00+01:00'];
  await store({ id: 'a', d: late }, { id: 'b', d: early }, { id: 'c', d: late }, { id: 'd', d: early });
  for (const [sort, ids] of [
    ['d', ['a', 'b']],
    ['-d', ['d', 'c']],
  ] as const) {
    for (const mode of ['live', 'lazy']) {
      const name = `${mode}${sort}`.replace('-', '_');
      await create(name, { sort_by: [sort], limit: 2 }, mode);
      expect([name, (await records(name)).map(({ id }) => id)]).toEqual([name, ids]);
    }
  }
});

test('extremes, distinct counts, first and last follow what leaves, whatever it was', async () => {
  await create('stats', {
    group_by: ['g'],
    aggregate: {
      least: { $min: 'n' },
      most: { $max: 'n' },
      kinds: { $count_distinct: 'n' },
      first: { $first: 'n' },
      last: { $last: 'n' },
    },
  });
  const long = 'x'.repeat(5_000);
  await store({ id: 'a', g: 1, n: `${long}b` }, { id: 'b', g: 1, n: `${long}a` }, { id: 'c', g: 1, n: 7 });
  await store({ id: 'd', g: 1, n: 7.0 }, { id: 'e', g: 1 });
  const row = async () => {
    const [found, ...others] = await records('stats');
    expect(others).toEqual([]);
    return found;
  };
  expect(await row()).toEqual({ g: 1, least: `${long}a`, most: 7, kinds: 3, first: `${long}b`, last: null });
  await store({ id: 'b', deleted: true }, { id: 'e', g: 1, n: 1 });
  expect(await row()).toEqual({ g: 1, least: `${long}b`, most: 7, kinds: 3, first: `${long}b`, last: 1 });
  await store({ id: 'a', g: 1, n: null });
  expect(await row()).toEqual({ g: 1, least: 1, most: 7, kinds: 2, first: 7, last: null });
  // A bulk that is copied ahead.
  await store(
    ...Array.from({ length: 150 }, (_, at) => ({ id: `n${at}`, g: 1, n: at - 50, padding: 'x'.repeat(1_000) })),
  );
  expect(await row()).toEqual({ g: 1, least: -50, most: 99, kinds: 150, first: 7, last: 99 });
  await store(...Array.from({ length: 148 }, (_, at) => ({ id: `n${at}`, deleted: true })));
  expect(await row()).toEqual({ g: 1, least: 1, most: 99, kinds: 4, first: 7, last: 99 });
  await fixture.methods.deleteView({ appId: app.appId, name: 'stats', ticketId: '' });
  const left = await fixture.pool.query(
    `select from pg_class where relnamespace = 'a_${app.number}'::regnamespace and relname ~ '^[vw]_' and relkind = 'r'`,
  );
  expect(left.rows).toHaveLength(0);
});

test('a view without groups always has its row', async () => {
  await create('all', { aggregate: { n: { $count: '*' }, m: { $avg: 'n' } } });
  expect(await records('all')).toEqual([{ n: 0, m: null }]);
  await store({ id: 'a', n: 3 });
  expect(await records('all')).toEqual([{ n: 1, m: 3 }]);
  await store({ id: 'a', deleted: true });
  expect(await records('all')).toEqual([{ n: 0, m: null }]);
});

test('purged and erased documents leave the views in the same transaction', async () => {
  await store({ id: 'a', g: 'x', n: 1 }, { id: 'b', g: 'x', n: 2 }, { id: 'c', g: 'y', n: 3 });
  await create('sums', totals);
  await create('copy', {});
  const erased = { collection: 'docs', id: 'c', ifMatch: null, idempotency: noIdempotency };
  await fixture.methods.eraseDocument({
    appId: app.appId,
    appNumber: app.number.toString(),
    ...erased,
  });
  expect(await records('sums')).toEqual([{ g: 'x', n: 2, s: 3, m: 1.5 }]);
  expect((await app.read('readView', 'copy', {})).total).toBe(2);
  await fixture.methods.setRetention({
    appId: app.appId,
    collection: 'docs',
    retentionDays: 7,
    idempotency: noIdempotency,
  });
  const table = await fixture.pool.query<{ number: string }>(
    `select number::text from collection where app_number = ${app.number}`,
  );
  await fixture.pool.query(
    `update a_${app.number}.c_${table.rows[0]!.number} set updated_at = now() - interval '8 days' where id = 'b'`,
  );
  await purgeExpired({ pool: fixture.pool, log, derived: new AfterPlan(liveViewRows).removals });
  expect(await records('sums')).toEqual([{ g: 'x', n: 1, s: 1, m: 1 }]);
  expect(await records('copy')).toEqual([{ id: 'a', g: 'x', n: 1 }]);
});

test('an error in the table of a view refuses no write: its readers get it computed until it is whole again', async () => {
  await store({ id: 'a', g: 'x', n: 1 });
  await create('sums', totals);
  await create('copy', { sort_by: ['-n'], select: ['n'] });
  await fixture.pool.query(`alter table ${await tableOf('sums')} add constraint planted check (n < 2)`);
  await store({ id: 'b', g: 'x', n: 2 });
  expect(await records('sums')).toEqual([{ g: 'x', n: 2, s: 3, m: 1.5 }]);
  expect(await records('copy')).toEqual([{ n: 2 }, { n: 1 }]);
  await eventually(
    async () => (await details('sums')).status === 'ready' && (await details('copy')).status === 'ready',
  );
  await store({ id: 'c', g: 'x', n: 3 });
  expect(await records('sums')).toEqual([{ g: 'x', n: 3, s: 6, m: 2 }]);
  expect(await records('copy')).toEqual([{ n: 3 }, { n: 2 }, { n: 1 }]);
});

test('a view that a purge or an erasure cannot change is broken, and the document is gone', async () => {
  await store({ id: 'a', g: 'x', n: 1 }, { id: 'b', g: 'x', n: 1 });
  await create('sums', totals);
  await fixture.pool.query(`alter table ${await tableOf('sums')} add constraint planted check (n > 1)`);
  await fixture.methods.eraseDocument({
    appId: app.appId,
    appNumber: app.number.toString(),
    collection: 'docs',
    id: 'b',
    ifMatch: null,
    idempotency: noIdempotency,
  });
  expect(await records('sums')).toEqual([{ g: 'x', n: 1, s: 1, m: 1 }]);
  await eventually(async () => (await details('sums')).status === 'ready');
  expect(await records('sums')).toEqual([{ g: 'x', n: 1, s: 1, m: 1 }]);
});

test('a write that is at fault itself leaves the views alone', async () => {
  await app.createComposite('docs', ['u', 'w'], true);
  await create('sums', totals);
  await store({ id: 'a', u: 1, w: 1, g: 'x', n: 1 });
  const before = await tableOf('sums');
  await expect(store({ id: 'b', u: 1, w: 1 })).rejects.toMatchObject({ reason: 'UNIQUE_VIOLATION' });
  expect([(await details('sums')).status, await tableOf('sums')]).toEqual(['ready', before]);
  expect(await records('sums')).toEqual([{ g: 'x', n: 1, s: 1, m: 1 }]);
});

test('a view that is created while documents are written has all of them', async () => {
  let [stored, isDone] = [0, false];
  const writers = Array.from({ length: 4 }, async (_, writer) => {
    while (!isDone) {
      await store(...Array.from({ length: 5 }, (_, at) => ({ id: `${writer}-${stored + at}`, g: stored % 3, n: 1 })));
      stored += 5;
    }
  });
  await create('before', { aggregate: { n: { $count: '*' }, s: { $sum: 'n' } } });
  await Promise.all([create('one', totals), create('two', { find: { g: 1 } }), create('three', { select: ['id'] })]);
  isDone = true;
  await Promise.all(writers);
  const listed = await app.list({ root: `${app.appId}::docs`, limit: 1 });
  expect((await app.read('readView', 'three', {})).total).toBe(listed.total);
  const one = (await records('one')).reduce((sum, { n }) => sum + Number(n), 0);
  expect([one, (await records('before'))[0]]).toEqual([listed.total, { n: listed.total, s: listed.total }]);
  const matching = await app.list({ root: `${app.appId}::docs`, find: { g: 1 }, limit: 1 });
  expect((await app.read('readView', 'two', {})).total).toBe(matching.total);
});

test('the page of a live view has another tag after each write, and says when its source was last written', async () => {
  await store({ id: 'a', g: 'x', n: 1 });
  await create('sums', totals);
  const read = (ifNoneMatch?: string) =>
    fixture.methods.readView({
      appId: app.appId,
      name: 'sums',
      parameters: [],
      mayReadPrivate: false,
      ...(ifNoneMatch !== undefined && { ifNoneMatch }),
    });
  // The usage of a write is recorded some time after it, which makes another tag of the same page once.
  const first = await eventually(async () => {
    const page = await read();
    return (await read(page.etag)).json.length === 0 ? page : undefined;
  });
  await store({ id: 'b', g: 'x', n: 1 });
  const second = await read(first.etag);
  expect(second.json.toString()).toContain('"n":2');
  const { refreshed_at: first_at } = JSON.parse(first.json.toString()) as { refreshed_at: string };
  const { refreshed_at: second_at } = JSON.parse(second.json.toString()) as { refreshed_at: string };
  expect(second_at > first_at).toBe(true);
  expect((await details('sums')).refreshedAt).toBe(second_at);
});

test('a collection has 16 live views at most', async () => {
  for (let at = 0; at < 16; at += 1) await create(`v${at}`, {});
  await expect(create('one-more', {})).rejects.toMatchObject({ reason: 'LIMIT_EXCEEDED' });
  await fixture.methods.deleteView({ appId: app.appId, name: 'v0', ticketId: '' });
  await create('one-more', {});
  await store({ id: 'a' });
  expect(await records('one-more')).toEqual([{ id: 'a' }]);
});

test('groups of values that no btree holds are kept apart', async () => {
  const long = 'x'.repeat(200_000);
  const deep = Array.from({ length: 30 }).reduce<object>((inner) => ({ a: [inner, 1.5] }), {});
  await create('sums', { group_by: ['g', 'h'], aggregate: { n: { $count: '*' } } });
  await store({ id: 'a', g: long, h: deep }, { id: 'b', g: `${long}y`, h: deep }, { id: 'c', g: long, h: { a: [] } });
  await store({ id: 'd', g: long, h: deep });
  const counts = (await records('sums')).map(({ g, h, n }) => [String(g).length, JSON.stringify(h).length, n]);
  expect(counts).toHaveLength(3);
  expect(counts).toContainEqual([200_000, JSON.stringify(deep).length, 2]);
});

test('an app is deleted with the log of its rows and all else that it had', async () => {
  await store({ id: 'a', g: 'x' });
  await create('followed', totals, 'live', {}, true);
  await store({ id: 'b', g: 'x' });
  await fixture.methods.eraseDocument({
    appId: app.appId,
    appNumber: app.number.toString(),
    collection: 'docs',
    id: 'a',
    ifMatch: null,
    idempotency: noIdempotency,
  });
  const tables = () =>
    fixture.pool.query<{ name: string }>(
      `select relname as name from pg_class where relnamespace = to_regnamespace('a_${app.number}') and relkind = 'r'`,
    );
  expect((await tables()).rows.map(({ name }) => name)).toEqual(
    expect.arrayContaining(['commits', 'erasures', 'view_log']),
  );
  await fixture.methods.deleteApplication({ appId: app.appId, idempotency: noIdempotency });
  await eventually(async () => {
    const gone = await fixture.pool.query('select from application where number = $1 and dropped_at is not null', [
      app.number,
    ]);
    return gone.rowCount === 1;
  });
  expect((await tables()).rows).toEqual([]);
});

test('feeds of views with more different selections than an app may have are refused, and no others', async () => {
  await store({ id: 'a', g: 'x' });
  await create('followed', {}, 'live', {}, true);
  const none = Buffer.alloc(0);
  const flags = { omitsDocuments: false, onlyLatest: false, mayReadPrivate: true, isDelegated: false, location: '' };
  const channels = Array.from({ length: 33 }, (_, index) => {
    const select = Buffer.from(JSON.stringify([`f${index}`]));
    return { collections: ['followed'], view: 'followed', find: none, select, ...flags };
  });
  const limits = { limit: 10, bytesMax: 10_000, waitMs: 0, catalogRevision: '0', isOpening: false };
  const request = { appId: app.appId, since: '0', channelsDigest: none, channels, ...limits };
  const { changes, refusals } = await fixture.methods.readChanges(request);
  expect(refusals.map(({ channel, error }) => [channel, error?.reason])).toEqual([[32, 'TOO_MANY_FILTERS']]);
  expect(changes.flatMap(({ events }) => events.flatMap((event) => event.channels))).toHaveLength(32);
});

test('a position that is gone for one view is gone for a feed of others as well, which is told nothing behind it', async () => {
  await store({ id: 'a', g: 'x' });
  await create('followed', totals, 'live', {}, true);
  const none = Buffer.alloc(0);
  const flags = { omitsDocuments: false, onlyLatest: false, mayReadPrivate: true, isDelegated: false, location: '' };
  const channels = [
    { collections: ['followed'], view: 'followed', find: none, select: none, ...flags },
    { collections: ['docs'], view: '', find: none, select: none, ...flags },
  ];
  const limits = { limit: 10, bytesMax: 10_000, waitMs: 0, catalogRevision: '0', isOpening: false };
  const follow = (since: string) =>
    fixture.methods.readChanges({ appId: app.appId, since, channelsDigest: none, channels, ...limits });
  const { cursor } = await follow('0');
  const { ticketId } = await fixture.methods.refreshView({
    appId: app.appId,
    name: 'followed',
    ticketId: newTicket('j', app.number),
  });
  await app.completed(ticketId);
  await store({ id: 'b', g: 'y' });
  const gone = await follow(cursor);
  expect(gone.refusals.map(({ channel, error }) => [channel, error?.reason])).toEqual([[0, 'CURSOR_GONE']]);
  expect([gone.changes, gone.cursor]).toEqual([[], cursor]);
  const views = (await follow('0')).changes.flatMap(({ events }) =>
    events.filter((event) => event.channels.includes(0)),
  );
  expect(views).toHaveLength(2);
});
