import { readJson } from '@granary/shared/json/value';
import { newTicket } from '@granary/shared/ids';
import { findCollection } from '../src/catalog/collection';
import type { Position } from '../src/query/plan/cursor';
import { parseFind } from '../src/query/language/filter';
import { planByPool } from './support/plans';
import { pageStatement } from '../src/query/sql/page-sql';
import { documentsRelation } from '../src/query/plan/relation';
import { startFixture, type Fixture, type TestApp } from './support/query-fixture';
import { findApp } from '../src/catalog/app';
import { parseSort } from '../src/query/language/sort';

let fixture: Fixture;
beforeAll(async () => {
  fixture = await startFixture();
});
afterAll(() => fixture.stop());

const rootOf = (app: TestApp, collection: string): string => `${app.appId}::${collection}`;

describe('over 20,000 documents', () => {
  let app: TestApp;
  const categories = 20;
  beforeAll(async () => {
    app = await fixture.newApp();
    await app.createCollection('items');
    // Some lack one of the fields, or have an array there.
    const score = (at: number) => (at % 1_000 === 7 ? '[1]' : at % 500 === 3 ? 'null' : String(at % 997));
    const texts = Array.from(
      { length: 20_000 },
      (_, at) =>
        `{"id":"${String(at).padStart(5, '0')}","category":"c${at % categories}","score":${score(at)},"filling":"${'x'.repeat(200)}"}`,
    );
    await app.store('items', texts);
    await app.createComposite('items', ['category', 'score']);
  });

  /** The rows that Postgres read of the table of documents for a page, and the plan. */
  async function readFor(find: object, sort: string[], after?: Position) {
    const ref = (await findCollection(fixture.pool, await findApp(fixture.pool, app.appId), 'items'))!;
    const source = documentsRelation(ref, { includeHistory: false, includeDeleted: false });
    const { text, values } = pageStatement(
      planByPool(source, {
        find: parseFind(readJson(Buffer.from(JSON.stringify(find)), { maxDepth: 64 })),
        sort: parseSort(sort, 'sort'),
        limit: 20,
        offset: 0,
        after,
      }),
    ).compile();
    const explained = await fixture.pool.query<{ 'QUERY PLAN': string }>(
      `explain (analyze, costs off, timing off, buffers off) ${text}`,
      values,
    );
    const plan = explained.rows.map((line) => line['QUERY PLAN']).join('\n');
    const scans = [...plan.matchAll(/Scan.* on c_.*rows=([\d.]+)/g)].map(([, rows]) => Number(rows));
    const removed = [...plan.matchAll(/Rows Removed by (?:Filter|Index Recheck): (\d+)/g)].map(([, rows]) =>
      Number(rows),
    );
    return { plan, read: [...scans, ...removed].reduce((sum, rows) => sum + rows, 0) };
  }

  const place = (...values: Array<string | null>) => ({ values, id: '10000', version: null });

  // 40 documents of c3 and 60 in all have null or an array there: they come from the index like the others.
  test.each<[string, object, string[], Position | undefined]>([
    ['a fixed field, in order of the next', { category: 'c3' }, ['score'], undefined],
    ['the same, descending', { category: 'c4' }, ['-score'], undefined],
    ['the same where some have null or an array', { category: 'c3' }, ['-score'], undefined],
    ['a page far behind the first', { category: 'c3' }, ['-score'], place('400')],
    ['the same, ascending', { category: 'c3' }, ['score'], place('600')],
    ['a page of those without a value', { category: 'c3' }, ['score'], place(null)],
    ['a fixed field in the sort', { category: 'c3' }, ['-category', '-score'], place('"c3"', '400')],
    ['a range of the next', { category: 'c3', score: { lt: 500 } }, ['-score'], undefined],
    ['an order by both fields', {}, ['category', 'score'], undefined],
    ['the same, descending', {}, ['-category', '-score'], undefined],
    ['a page of it far behind the first', {}, ['category', 'score'], place('"c3"', '400')],
    ['the same, descending', {}, ['-category', '-score'], place('"c3"', '400')],
  ])('for %s Postgres reads about the rows of the page', async (_, find, sort, after) => {
    const { plan, read } = await readFor(find, sort, after);
    expect(plan).not.toMatch(/Seq Scan on c_/);
    expect(read).toBeLessThanOrEqual(20 + 3);
  });

  test.each<[string, object]>([
    ['both fields', { category: 'c3', score: 43 }],
    ['the first and a range of the second', { category: 'c3', score: { between: [40, 50] } }],
  ])('a filter on %s reads what matches', async (_, find) => {
    const { plan, read } = await readFor(find, []);
    expect(plan).not.toMatch(/Seq Scan on c_/);
    const { total } = await app.list({ root: rootOf(app, 'items'), find });
    // A bitmap is read twice: its index, then the table.
    expect(read).toBeLessThanOrEqual(2 * total!);
  });

  test('members are indexed fields of endpoint 3, with their order', async () => {
    const page = await app.read('readCollection', 'items', { category: 'c4', sort: '-score', limit: '2' });
    const scores = page.records.map(({ score }) => score);
    expect(page.total).toBe(20_000 / categories);
    expect(scores).toEqual([expect.any(Number), expect.any(Number)]);
    expect(Number(scores[0])).toBeGreaterThanOrEqual(Number(scores[1]));
  });
});

describe('a unique composite', () => {
  let app: TestApp;
  beforeEach(async () => {
    app = await fixture.newApp();
    await app.createCollection('seats');
  });
  const seat = (id: string, more: object) => JSON.stringify({ id, ...more });
  const ids = async () => (await app.list({ root: rootOf(app, 'seats') })).records.map(({ id }) => id);

  test('refuses equal values of all its fields together, and nothing else', async () => {
    await app.createComposite('seats', ['row', 'n'], true);
    await app.store('seats', [
      seat('1', { row: 'a', n: 1 }),
      seat('2', { row: 'a', n: 2 }),
      seat('3', { row: 'b', n: 1 }),
    ]);
    await expect(app.store('seats', [seat('4', { row: 'a', n: 1.0 })])).rejects.toMatchObject({
      reason: 'UNIQUE_VIOLATION',
      message: expect.stringContaining('row, n') as string,
    });
    // Null, missing and soft-deleted never collide; the text of a number is no number; parts do not run together.
    const free = [
      { row: 'a' },
      { row: 'a', n: null },
      { row: 'a', n: '1' },
      { row: 'a', n: 1, deleted: true },
      { row: 'a1', n: 1 },
    ];
    for (const [at, more] of free.entries()) {
      await app.store('seats', [
        seat(`f${at}`, more),
        seat(`g${at}`, { ...more, n: 'n' in more ? more.n : undefined, row: more.row + at }),
      ]);
    }
    expect(await ids()).toHaveLength(3 + 2 * free.length);
  });

  test('lets two documents of one call exchange their values', async () => {
    await app.createComposite('seats', ['row', 'n'], true);
    await app.store('seats', [seat('1', { row: 'a', n: 1 }), seat('2', { row: 'b', n: 2 })]);
    await app.store('seats', [seat('1', { row: 'b', n: 2 }), seat('2', { row: 'a', n: 1 })]);
    const { records } = await app.list({ root: rootOf(app, 'seats'), find: { row: 'a', n: 1 } });
    expect(records.map(({ id }) => id)).toEqual(['2']);
  });

  test('is not made over documents that collide', async () => {
    await app.store('seats', [seat('1', { row: 'a', n: 1 }), seat('2', { row: 'a', n: 1 })]);
    await expect(app.createComposite('seats', ['row', 'n'], true)).rejects.toMatchObject({
      reason: 'UNIQUE_VIOLATION',
      details: {
        row: [expect.any(String), '"a", 1 in "1", "2"'],
        n: [expect.any(String), '"a", 1 in "1", "2"'],
      },
    });
  });
});

test('a composite over many documents is built by a task, rebuilt and deleted, and reads agree throughout', async () => {
  const app = await fixture.newApp();
  await app.createCollection('many', { fields: { at: { type: 'date' } } });
  const texts = Array.from({ length: 1_500 }, (_, at) => {
    const score = at % 7 === 0 ? '' : `,"score":${at % 11 === 0 ? '{}' : at % 100}`;
    return `{"id":"${at}","kind":"k${at % 3}"${score},"at":"2024-01-01T00:00:${String(at % 60).padStart(2, '0')}Z"}`;
  });
  await app.store('many', texts);
  const body = { root: rootOf(app, 'many'), find: { kind: 'k1' }, sort: ['-score', '-at'], limit: 1_000 };
  const before = (await app.list(body)).records;
  const same = async () => expect((await app.list(body)).records).toEqual(before);
  const made = { appId: app.appId, collection: 'many', name: 'by', ticketId: '' };
  const ticketId = newTicket('j', app.number);
  const request = { ...made, appNumber: app.number.toString(), fieldName: '', fields: ['kind', 'score', 'at'] };
  const started = await fixture.methods.createIndex({ ...request, indexType: 'Composite', unique: false, ticketId });
  expect(started).toMatchObject({ ticketId, index: { status: 'building', fields: ['kind', 'score', 'at'] } });
  await same();
  await app.completed(ticketId);
  await same();
  // The keys of its dates mean something else when the schema says so.
  const update = (type: string) =>
    fixture.methods.updateCollection({
      appId: app.appId,
      name: 'many',
      schemaJson: JSON.stringify({ fields: { at: { type } } }),
      force: true,
    });
  await update('string');
  expect(await fixture.methods.getIndex(made)).toMatchObject({ status: 'building' });
  await same();
  await update('date');
  const rebuilt = await fixture.methods.rebuildIndex({ ...made, ticketId: newTicket('j', app.number) });
  await app.completed(rebuilt.ticketId);
  expect(await fixture.methods.getIndex(made)).toMatchObject({ status: 'ready' });
  await same();
  const stats = await fixture.methods.getCollectionStats({ appId: app.appId, collection: 'many' });
  expect(stats.indexCount).toBe(1);
  await fixture.methods.deleteIndex(made);
  await same();
  await expect(fixture.methods.getIndex(made)).rejects.toMatchObject({ reason: 'INDEX_NOT_FOUND' });
});

test.each([
  [['a'], 'fields'],
  [['a', 'b', 'c', 'd', 'e'], 'fields'],
  [['a', 'b', 'a'], 'fields'],
  [['a', 'b..c'], 'fields'],
])('a composite over %j is refused', async (fields, at) => {
  const app = await fixture.newApp();
  await expect(app.createComposite('c', fields)).rejects.toMatchObject({ details: { [at]: [expect.any(String)] } });
});
