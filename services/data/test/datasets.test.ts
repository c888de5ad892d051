import { setTimeout as delay } from 'node:timers/promises';
import { eventually } from '@granary/testing/eventually';
import { parseFind } from '../src/query/language/filter';
import { readJson } from '@granary/shared/json/value';
import { findCollection } from '../src/catalog/collection';
import { findApp } from '../src/catalog/app';
import { planPage } from '../src/query/plan/page-plan';
import { documentsRelation } from '../src/query/plan/relation';
import { pageStatement } from '../src/query/sql/page-sql';
import { resolveReferences } from '../src/query/execute/references';
import { DatasetTableSweeper } from '../src/datasets/table-sweeper';
import { log, noIdempotency } from './support/data-service';
import { startFixture, type Fixture, type TestApp } from './support/query-fixture';

let fixture: Fixture;
beforeAll(async () => {
  fixture = await startFixture();
});
afterAll(() => fixture.stop());

const put = (app: TestApp, name: string, values: unknown, idempotency = noIdempotency) =>
  fixture.methods.putDataset({ appId: app.appId, name, body: Buffer.from(JSON.stringify({ values })), idempotency });

const tablesOf = async (app: TestApp): Promise<string[]> => {
  const found = await fixture.pool.query<{ relname: string }>(
    `select relname from pg_class where relnamespace = to_regnamespace($1) and relkind = 'r' and relname like 'd\\_%'`,
    [`a_${app.number}`],
  );
  return found.rows.map(({ relname }) => relname);
};

test('whoever reads while a data set is replaced sees all old values or all new ones, in the records and in the total', async () => {
  const app = await fixture.newApp();
  await app.createCollection('c');
  const count = 300;
  await app.store(
    'c',
    Array.from({ length: 2 * count }, (_, n) => JSON.stringify({ id: `k${n}`, n, m: n })),
  );
  await app.createIndex('c', 'n');
  const [even, odd] = [0, 1].map((start) => Array.from({ length: count }, (_, at) => 2 * at + start));
  await put(app, 'chosen', even);
  let isReplacing = true;
  const replacing = (async () => {
    for (let round = 0; round < 40; round += 1) await put(app, 'chosen', round % 2 === 0 ? odd : even);
    isReplacing = false;
  })();
  const seen = new Set<number>();
  const read = async (field: string) => {
    for (let rounds = 0; isReplacing || rounds < 5; rounds += 1) {
      const body = { root: `${app.appId}::c`, find: { [field]: { inDataset: 'chosen' } }, limit: 200 };
      const page = await app.list(body);
      const sides = new Set(page.records.map(({ n }) => Number(n) % 2));
      expect([sides.size, page.records.length, page.total]).toEqual([1, 200, count]);
      for (const side of sides) seen.add(side);
    }
  };
  await Promise.all([replacing, read('n'), read('m')]);
  expect([...seen].sort()).toEqual([0, 1]);
});

test('the table of a replaced data set is kept for the reads that looked it up, and is dropped after them', async () => {
  const app = await fixture.newApp();
  for (const values of [[1], [2], [3]]) await put(app, 'chosen', values);
  expect(await tablesOf(app)).toHaveLength(3);
  const sweeper = new DatasetTableSweeper({ pool: fixture.pool, log: log }, 100);
  sweeper.sweepLater(app.number);
  await delay(150);
  // A replacement while a sweep runs, or is to come, is swept as well.
  await put(app, 'chosen', [4]);
  sweeper.sweepLater(app.number);
  await eventually(async () => (await tablesOf(app)).length === 1);
  await sweeper.stop();
  expect((await fixture.methods.getDataset({ appId: app.appId, name: 'chosen' })).valuesJson?.toString()).toBe('[4]');
});

test('tables that a process left behind are swept in every app', async () => {
  const [app, other] = [await fixture.newApp(), await fixture.newApp()];
  for (const { number } of [app, other]) {
    await fixture.pool.query(`create table a_${number}.d_9000000${number} (key bytea)`);
  }
  await put(app, 'used', [1]);
  const sweeper = new DatasetTableSweeper({ pool: fixture.pool, log: log }, 20);
  await sweeper.sweepAll();
  await eventually(async () => (await tablesOf(app)).length + (await tablesOf(other)).length === 1);
  await sweeper.stop();
});

test('a data set is gone at once when it is deleted, its table too, and with its app', async () => {
  const app = await fixture.newApp();
  await app.createCollection('c');
  await app.store('c', ['{"id":"a"}']);
  await put(app, 'one', ['a']);
  await put(app, 'two', ['a']);
  const list = (name: string) => app.list({ root: `${app.appId}::c`, find: { id: { inDataset: name } } });
  expect((await list('one')).total).toBe(1);
  await fixture.methods.deleteDataset({ appId: app.appId, name: 'one' });
  await expect(list('one')).rejects.toMatchObject({ reason: 'INVALID_QUERY' });
  await expect(fixture.methods.deleteDataset({ appId: app.appId, name: 'one' })).rejects.toMatchObject({
    reason: 'DATASET_NOT_FOUND',
  });
  expect(await tablesOf(app)).toHaveLength(1);
  await fixture.methods.deleteApplication({ appId: app.appId });
  await eventually(async () => {
    const left = await fixture.pool.query('select from dataset where app_number = $1', [app.number.toString()]);
    return left.rowCount === 0 && (await tablesOf(app)).length === 0;
  });
});

test('another app does not see a data set', async () => {
  const [app, other] = [await fixture.newApp(), await fixture.newApp()];
  await put(app, 'mine', [1]);
  await other.createCollection('c');
  const find = { a: { inDataset: 'mine' } };
  await expect(other.list({ root: `${other.appId}::c`, find })).rejects.toMatchObject({ reason: 'INVALID_QUERY' });
  await expect(fixture.methods.getDataset({ appId: other.appId, name: 'mine' })).rejects.toMatchObject({
    reason: 'DATASET_NOT_FOUND',
  });
});

describe('of 20,000 documents', () => {
  let app: TestApp;
  beforeAll(async () => {
    app = await fixture.newApp();
    await app.createCollection('many');
    const filler = 'x'.repeat(200);
    await app.store(
      'many',
      Array.from({ length: 20_000 }, (_, n) => JSON.stringify({ id: `k${n}`, n, text: `t${n}`, filler })),
    );
    await app.createIndex('many', 'n');
    await app.createIndex('many', 'text');
    await put(app, 'few', [17, 't18', 'k19', 'nothing']);
    await put(
      app,
      'most',
      Array.from({ length: 100_000 }, (_, n) => n * 2),
    );
    await fixture.pool.query(`vacuum analyze a_${app.number}.c_${(await collection()).number}`);
  });

  const collection = async () => (await findCollection(fixture.pool, await findApp(fixture.pool, app.appId), 'many'))!;

  async function plan(find: object): Promise<string> {
    const condition = parseFind(readJson(Buffer.from(JSON.stringify(find)), { maxDepth: 64 }));
    const resolved = await resolveReferences(fixture.pool, app.appId, condition);
    const relation = documentsRelation(await collection(), { includeHistory: false, includeDeleted: true });
    const { text, values } = pageStatement(
      planPage(relation, { find: resolved, sort: [], limit: 100, offset: 0 }),
    ).compile();
    const explained = await fixture.pool.query<{ 'QUERY PLAN': string }>(`explain ${text}`, values);
    return explained.rows.map((line) => line['QUERY PLAN']).join('\n');
  }

  test.each(['n', 'text', 'id'])('the index of %s finds those with one of a few values', async (field) => {
    const text = await plan({ [field]: { inDataset: 'few' } });
    expect(text).toMatch(/Index (Only )?Scan.* on c_|Bitmap Index Scan/);
    expect(text).not.toMatch(/Seq Scan on c_/);
    const { total } = await app.list({ root: `${app.appId}::many`, find: { [field]: { inDataset: 'few' } } });
    expect(total).toBe(1);
  });

  test('100,000 values are joined, or each document looked up among them, also below `not` and `or`', async () => {
    const total = async (find: object) => (await app.list({ root: `${app.appId}::many`, find, limit: 1 })).total;
    expect(await total({ n: { inDataset: 'most' } })).toBe(10_000);
    expect(await total({ not: [{ n: { inDataset: 'most' } }] })).toBe(10_000);
    expect(await total({ or: [{ n: { inDataset: 'most' } }, { 'n.$inDataset': 'few' }] })).toBe(10_001);
    expect(await total({ filler: { inDataset: 'most' } })).toBe(0);
  });
});
