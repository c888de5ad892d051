import { readJson } from '@granary/shared/json/value';
import { findApp } from '../src/catalog/app';
import { findCollections } from '../src/catalog/collection';
import { pageTextStatement } from '../src/query/execute/read-page';
import { parseFind } from '../src/query/language/filter';
import { planPage } from '../src/query/plan/page-plan';
import { documentsRelation } from '../src/query/plan/relation';
import { stepAfterHead } from '../src/query/plan/scan';
import { startFixture, type Fixture, type Page, type TestApp } from './support/query-fixture';

/** More than the head of a scan has. */
const documentCount = 12_000;
const idOf = (number: number): string => `d${String(number).padStart(6, '0')}`;

let fixture: Fixture;
let app: TestApp;
beforeAll(async () => {
  fixture = await startFixture();
  app = await fixture.newApp();
  await app.createCollection('items');
  const texts = Array.from({ length: documentCount }, (_, number) =>
    JSON.stringify({ id: idOf(number), number, kind: number % 4_000 === 3_999 ? 'rare' : 'usual', half: number % 2 }),
  );
  await app.store('items', texts);
});
afterAll(() => fixture.stop());

const list = (body: object): Promise<Page> => app.list({ root: `${app.appId}::items`, select: ['id'], ...body });
const idsOf = ({ records }: Page): unknown[] => records.map(({ id }) => id);

const planOf = async (find: object, limit: number, offset = 0) => {
  const [items] = await findCollections(fixture.pool, await findApp(fixture.pool, app.appId), ['items']);
  const relation = documentsRelation(items!, { includeHistory: false, includeDeleted: false });
  const condition = parseFind(readJson(Buffer.from(JSON.stringify(find)), { maxDepth: 64 }));
  return planPage(relation, { find: condition, sort: [], limit, offset });
};

test('a scan finds the matches behind its head, in the order of ids, and counts them', async () => {
  const rare = [3_999, 7_999, 11_999].map(idOf);
  expect(await list({ find: { kind: 'rare' } })).toMatchObject({ records: rare.map((id) => ({ id })), total: 3 });
  expect(idsOf(await list({ find: { kind: 'rare' }, sort: ['-id'] }))).toEqual([...rare].reverse());
  expect(idsOf(await list({ find: { kind: 'rare' }, sort: ['-number'] }))).toEqual([...rare].reverse());
  expect(idsOf(await list({ find: { kind: 'rare' }, limit: 1, offset: 2 }))).toEqual(rare.slice(2));
  expect(await list({ find: { kind: 'rare' }, limit: 2, offset: 5 })).toMatchObject({ records: [], total: 3 });
  const last = await list({ find: { number: { gte: 11_990 } } });
  expect(idsOf(last)).toEqual(Array.from({ length: 10 }, (_, at) => idOf(11_990 + at)));
  expect((await list({ find: { half: 1, number: { lt: 11_000 } }, limit: 1, count: 'exact' })).total).toBe(5_500);
});

test('the pages of a scan by a cursor have every match once', async () => {
  const find = { number: { between: [9_990, 10_020] } };
  for (const [sort, numbers] of [
    [['id'], Array.from({ length: 31 }, (_, at) => 9_990 + at)],
    [['-id'], Array.from({ length: 31 }, (_, at) => 10_020 - at)],
  ] as const) {
    const found: unknown[] = [];
    for (let cursor: unknown = undefined, first = true; first || cursor !== undefined; first = false) {
      const page = await list({ find, sort, limit: 7, count: 'none', ...(first ? {} : { cursor }) });
      found.push(...idsOf(page));
      cursor = page['next_cursor'];
    }
    expect(found).toEqual(numbers.map(idOf));
  }
});

test('several processes can read the rows of a scan', async () => {
  const plan = await planOf({ kind: 'rare', number: { gte: 5_000 } }, 101);
  expect(plan.scan).toEqual({ kind: 'head', rows: 10_000 });
  const { text, values } = pageTextStatement({ ...plan, scan: { kind: 'whole' } }).compile();
  const connection = await fixture.pool.connect();
  try {
    await connection.query('begin');
    for (const cost of ['parallel_setup_cost', 'parallel_tuple_cost', 'min_parallel_table_scan_size']) {
      await connection.query(`set local ${cost} = 0`);
    }
    const { rows } = await connection.query<{ 'QUERY PLAN': string }>(`explain ${text}`, values);
    expect(rows.map((row) => row['QUERY PLAN']).join('\n')).toContain('Parallel Seq Scan');
  } finally {
    await connection.query('rollback');
    connection.release();
  }
});

test('a scan whose head found many matches, and one far behind a large offset, go on in the order of ids', async () => {
  const plan = await planOf({ half: 1 }, 101);
  const large = { ...plan, relation: { ...plan.relation, tableRowCount: 1_000_000n } };
  expect(stepAfterHead(large, 10_000, 50)).toBeUndefined();
  expect(stepAfterHead(large, 10_000, 8)).toEqual({ kind: 'whole' });
  expect(stepAfterHead(large, 10_000, 0)).toEqual({ kind: 'whole' });
  expect(stepAfterHead({ ...large, offset: 100 }, 10_000, 0)).toEqual({ kind: 'whole' });
  expect(stepAfterHead({ ...large, offset: 20_000 }, 10_000, 0)).toBeUndefined();
});
