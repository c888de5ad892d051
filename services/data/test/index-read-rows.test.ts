import { Client, escapeLiteral } from 'pg';
import { findApp } from '../src/catalog/app';
import { findCollection } from '../src/catalog/collection';
import { and, type Condition } from '../src/query/language/condition';
import { planPage } from '../src/query/plan/page-plan';
import { documentsRelation, type Relation } from '../src/query/plan/relation';
import { indexRead, indexReadSettings } from '../src/query/sql/index-scan-sql';
import { startFixture, type Fixture, type TestApp } from './support/query-fixture';

/* What Postgres does for index reads over 20,000 documents. */

let fixture: Fixture;
let app: TestApp;
beforeAll(async () => {
  fixture = await startFixture();
  app = await fixture.newApp();
  await app.createCollection('items');
  // Nearly all have one state; some lack a score.
  const score = (at: number) => (at % 500 === 3 ? 'null' : String(at % 997));
  const all = Array.from({ length: 20_000 }, (_, at) => {
    const state = at === 15_000 ? 'new' : 'done';
    return `{"id":"${String(at).padStart(5, '0')}","state":"${state}","kind":"k${at % 20}","score":${score(at)},"fill":"${'x'.repeat(200)}"}`;
  });
  await app.store('items', all);
  await app.createIndex('items', 'state');
  await app.createIndex('items', 'score');
  await app.createComposite('items', ['kind', 'score']);
  await app.createComposite('items', ['state', 'kind', 'score']);
  await fixture.pool.query('analyze');
});

afterAll(() => fixture.stop());

async function sourceOf({ appId }: TestApp, collection: string): Promise<Relation> {
  const found = (await findCollection(fixture.pool, await findApp(fixture.pool, appId), collection))!;
  return documentsRelation(found, { includeHistory: false, includeDeleted: false });
}

/** What Postgres does for a page of 20 on a connection of index reads: its plan, and how many rows it reads. */
async function explain(
  find: Record<string, string>,
  sort: string[],
  after?: string,
): Promise<{ plan: string; read: number }> {
  const read = indexRead(
    planPage(await sourceOf(app, 'items'), {
      find: and(...Object.entries(find).map(([name, value]): Condition => ({ kind: 'is', path: [name], value }))),
      sort: sort.map((name) => ({ path: [name.replace('-', '')], descending: name.startsWith('-') })),
      limit: 21,
      offset: 0,
      after: after === undefined ? undefined : { values: sort.map(() => after), id: '10000', version: null },
    }),
  )!;
  const connection = new Client({ connectionString: fixture.url });
  await connection.connect();
  try {
    for (const [name, value] of Object.entries(indexReadSettings)) await connection.query(`set ${name} = ${value}`);
    await connection.query(`prepare p as ${read.text}`);
    const values = read.values.map((value) => escapeLiteral(String(value))).join(', ');
    const explained = await connection.query<{ 'QUERY PLAN': string }>(
      `explain (analyze, costs off, timing off, buffers off) execute p(${values})`,
    );
    const plan = explained.rows.map((line) => line['QUERY PLAN']).join('\n');
    const numbers = [
      ...plan.matchAll(/Scan.* on c_.*rows=([\d.]+)/g),
      ...plan.matchAll(/Rows Removed by (?:Filter|Index Recheck): (\d+)/g),
    ];
    return { plan, read: numbers.reduce((sum, [, rows]) => sum + Number(rows), 0) };
  } finally {
    await connection.end();
  }
}

test.each<[string, Record<string, string>, string[], string | undefined]>([
  ['a value that nearly all have', { state: 'done' }, [], undefined],
  ['a value that few have', { state: 'new' }, [], undefined],
  ['a value that none has', { state: 'gone' }, [], undefined],
  ['the ids from the last', { state: 'done' }, ['-id'], undefined],
  ['a page far behind the first, by ids', { state: 'done' }, [], ''],
  ['the order of the next field', { kind: 'k3' }, ['score'], undefined],
  ['the same, descending', { kind: 'k4' }, ['-score'], undefined],
  ['the same where some have null', { kind: 'k3' }, ['-score'], undefined],
  ['a page far behind the first', { kind: 'k4' }, ['-score'], '400'],
  ['the same, ascending', { kind: 'k3' }, ['score'], '600'],
  ['two fields and the order of a third', { kind: 'k4', state: 'done' }, ['-score'], undefined],
  ['the order of two fields', { state: 'done' }, ['kind', 'score'], undefined],
  ['the order of a field of all documents', {}, ['score'], undefined],
  ['the same where some have null', {}, ['-score'], undefined],
  ['a page of all documents far behind the first', {}, ['-score'], '400'],
  ['an id', { id: '00007' }, [], undefined],
])('for %s Postgres reads the rows of the page, whatever it knows of the values', async (_, find, sort, after) => {
  const { plan, read } = await explain(find, sort, after);
  expect(plan).not.toMatch(/Seq Scan|Sort|Bitmap|Disabled/);
  // One row tells whether there is another page.
  expect(read).toBeLessThanOrEqual(21);
});
