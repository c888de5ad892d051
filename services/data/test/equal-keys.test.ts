import { size } from '@granary/testing/size';
import { startFixture, type Fixture, type Page, type TestApp } from './support/query-fixture';

/** So many documents with one value, and with strings whose keys are cut at the same character. */
const count = size({ run: 20_000, long: 100_000 });
const batchSize = 10_000;
const pageSize = 20;
const head = 'x'.repeat(260);
const textOf = (at: number): string => head + String((at * 7_919) % count).padStart(6, '0');

let fixture: Fixture;
let app: TestApp;
beforeAll(async () => {
  fixture = await startFixture();
  app = await fixture.newApp();
  await app.createCollection('many');
  await app.createCollection('few');
  await app.createIndex('many', 'same');
  await app.createIndex('many', 'text');
  for (let from = 0; from < count; from += batchSize) {
    const texts = Array.from({ length: Math.min(batchSize, count - from) }, (_, at) => {
      const number = from + at;
      return `{"id":"${String(number).padStart(6, '0')}","same":"one","text":"${textOf(number)}"}`;
    });
    await app.store('many', texts);
  }
  await app.store('few', ['{"id":"a","value":"one"}']);
  await fixture.pool.query('analyze');
});
afterAll(() => fixture.stop());

const root = (name: string): string => `${app.appId}::${name}`;
const idsOf = (page: Page): unknown[] => page.records.map(({ id }) => id);
const numberedIds = (from: number) => Array.from({ length: pageSize }, (_, at) => String(from + at).padStart(6, '0'));

/** Pages one behind the other, by cursors. */
async function walk(query: object, pages: number): Promise<Page[]> {
  const found: Page[] = [];
  let cursor: unknown;
  while (found.length < pages) {
    const page = await app.list({
      ...query,
      limit: pageSize,
      count: 'none',
      ...(cursor === undefined ? {} : { cursor }),
    });
    found.push(page);
    cursor = page['next_cursor'];
  }
  return found;
}

test('pages of many documents with one value are in the order of their ids', async () => {
  for (const query of [{ find: { same: 'one' } }, { sort: ['same'] }, { find: { same: { in: ['one', 'two'] } } }]) {
    const pages = await walk({ root: root('many'), ...query }, 5);
    expect(pages.map(idsOf)).toEqual([0, 1, 2, 3, 4].map((page) => numberedIds(page * pageSize)));
  }
});

test('pages of many strings with the same key are in the order of the whole strings, from any place on', async () => {
  const sorted = Array.from({ length: count }, (_, at) => ({ id: String(at).padStart(6, '0'), text: textOf(at) }));
  sorted.sort((a, b) => (a.text < b.text ? -1 : 1));
  for (const [sort, expected] of [
    ['text', sorted],
    ['-text', [...sorted].reverse()],
  ] as const) {
    const pages = await walk({ root: root('many'), sort: [sort] }, 3);
    expect(pages.flatMap(idsOf)).toEqual(expected.slice(0, 3 * pageSize).map(({ id }) => id));
  }
  const found = await app.list({ root: root('many'), find: { text: textOf(4_711) } });
  expect(idsOf(found)).toEqual(['004711']);
});

test('a join of a record with many others is refused with the limit, and its first one is found', async () => {
  const find = { all: { resolve: { find: { same: '$data.value' } }, model: 'many' } };
  await expect(app.list({ root: root('few'), find })).rejects.toMatchObject({
    reason: 'RESULT_TOO_LARGE',
    message: expect.stringContaining('1000') as string,
  });
  const first = await app.list({ root: root('few'), find: { all: { ...find.all, many: false } } });
  expect(first.records).toMatchObject([{ all: { id: '000000' } }]);
});
