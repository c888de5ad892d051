import { readJson } from '@granary/shared/json/value';
import { Compiler } from '../src/query/sql/filter-sql';
import { findCollection } from '../src/catalog/collection';
import { parseFind } from '../src/query/language/filter';
import { planByPool } from './support/plans';
import { pageStatement } from '../src/query/sql/page-sql';
import { documentsRelation } from '../src/query/plan/relation';
import { startFixture, type Fixture, type TestApp } from './support/query-fixture';
import { findApp } from '../src/catalog/app';

let fixture: Fixture;
beforeAll(async () => {
  fixture = await startFixture();
});
afterAll(() => fixture.stop());

describe('of 20,000 documents', () => {
  let app: TestApp;
  beforeAll(async () => {
    app = await fixture.newApp();
    await app.createCollection('many');
    const texts = Array.from(
      { length: 20_000 },
      (_, at) => `{"id":"${at}","price":${at % 5_000},"name":"name ${at}","filling":"${'x'.repeat(200)}"}`,
    );
    await app.store('many', texts);
    await app.createIndex('many', 'price');
    await app.createIndex('many', 'name');
  });

  async function plan(find: object, sort: string[], limit = 20): Promise<string> {
    const handle = (await findCollection(fixture.pool, await findApp(fixture.pool, app.appId), 'many'))!;
    const source = documentsRelation(handle, { includeHistory: false, includeDeleted: true });
    const terms = sort.map((name) => ({ path: [name.replace('-', '')], descending: name.startsWith('-') }));
    const condition = parseFind(readJson(Buffer.from(JSON.stringify(find)), { maxDepth: 64 }));
    const { text, values: parameters } = pageStatement(
      planByPool(source, {
        find: condition,
        sort: terms,
        limit,
        offset: 0,
      }),
    ).compile();
    const explained = await fixture.pool.query<{ 'QUERY PLAN': string }>(
      `explain (analyze, costs off, timing off) ${text}`,
      parameters,
    );
    return explained.rows.map((line) => line['QUERY PLAN']).join('\n');
  }

  test.each([
    ['equality', { price: 17 }, []],
    ['a list', { price: { in: [17, 18] } }, []],
    ['a range of numbers', { price: { gte: 4_990 } }, []],
    ['a range of strings', { name: { gte: 'name 1999', lt: 'name 19995' } }, []],
    ['the beginning of a string', { name: { startsWith: 'name 1999' } }, []],
    ['a regular expression that forces the beginning', { name: { $regex: '^name 1999.?$' } }, []],
    ['an order', {}, ['price']],
    ['an order that descends', {}, ['-price']],
    ['a range in its order', { price: { gt: 4_000 } }, ['-price']],
  ])('an index serves %s', async (_, find, sort) => {
    const text = await plan(find, sort);
    expect(text).toMatch(/Index (Only )?Scan|Bitmap Index Scan/);
    expect(text).not.toMatch(/Seq Scan on c_/);
  });

  test('a page in the order of an index is read, not sorted out of all documents', async () => {
    const text = await plan({}, ['price']);
    const read = [...text.matchAll(/Scan.* on c_.*rows=([\d.]+)/g)].map(([, rows]) => Number(rows));
    expect(Math.max(...read)).toBeLessThanOrEqual(20);
  });
});

test('a condition without a key needs the record, one with a key does not', async () => {
  const app = await fixture.newApp();
  await app.createCollection('c');
  await app.createIndex('c', 'a');
  const handle = (await findCollection(fixture.pool, await findApp(fixture.pool, app.appId), 'c'))!;
  const source = documentsRelation(handle, { includeHistory: false, includeDeleted: true });
  const from = (find: string): string => {
    const compiler = new Compiler(source);
    compiler.where(parseFind(readJson(Buffer.from(find), { maxDepth: 64 })));
    return compiler.records().compile().text;
  };
  expect(from('{"a":{"gt":1,"ne":"x","startsWith":"y","in":[1,"x"]}}')).not.toContain('jsonb');
  expect(from('{"b":1}')).toContain('jsonb');
});
