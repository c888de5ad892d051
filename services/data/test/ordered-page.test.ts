import { readJson } from '@granary/shared/json/value';
import { Client, escapeLiteral } from 'pg';
import { findApp } from '../src/catalog/app';
import { findCollection } from '../src/catalog/collection';
import { positionOf, type Position } from '../src/query/plan/cursor';
import { parseFind } from '../src/query/language/filter';
import { alternativePlan, planPage, type PageRequest } from '../src/query/plan/page-plan';
import { documentsRelation, type Relation } from '../src/query/plan/relation';
import { indexRead, indexReadSettings } from '../src/query/sql/index-scan-sql';
import { planByPool } from './support/plans';
import { pageStatement } from '../src/query/sql/page-sql';
import { startFixture, type Fixture, type TestApp } from './support/query-fixture';
import { follow, sortOrder } from './support/query-reference';
import { parseSort } from '../src/query/language/sort';

let fixture: Fixture;
let app: TestApp;
let source: Relation;
let client: Client;

const count = 20_000;
const pageRows = 20;
/** Documents that have the same first 256 bytes in a field, at most. */
const sameHeadMax = 3;
const filling = 'x'.repeat(120);

/** A string of which a key holds the beginning; some have that in common. */
function long(nth: number): string {
  const head = `${'é'.repeat(100)}${Math.floor(nth / sameHeadMax)}`;
  return JSON.stringify(`${head}${'y'.repeat(100)}${nth % sameHeadMax}`);
}

/** A field with values of all kinds, a long string in some, and the same one in many. */
function mixed(at: number): string {
  const n = Math.floor(at / 7) % 997;
  const kinds = [
    () => `"s${n % 50}"`,
    () => `${n}.50`,
    () => (at % 2 === 0 ? 'true' : 'false'),
    () => (at % 2 === 0 ? '[1,"x"]' : '{"y":2}'),
    () => 'null',
    () => '',
    () => (at % 50 === 6 ? long(Math.floor(at / 350)) : `"l${String(n)}"`),
  ];
  return kinds[at % kinds.length]!();
}

const member = (name: string, text: string): string => (text === '' ? '' : `,"${name}":${text}`);

function documentText(at: number): string {
  const day = String(1 + (at % 28)).padStart(2, '0');
  const date = [`"2024-01-${day}T00:00:00Z"`, `"2024-01-${day}T01:00:00.5+01:00"`, '"soon"', '5', 'null', ''][at % 6]!;
  const parts = [
    `"id":"${String((at * 7_919) % count).padStart(5, '0')}"`,
    member('kind', `"k${at % 4}"`),
    member('a', mixed(at)),
    member('b', mixed(Math.floor(at / 3) + 11)),
    member('group', `"g${at % 5}"`),
    member('maybe', at % 2 === 0 ? 'null' : String(at % 1_000)),
    member('at', date),
    member('filling', `"${filling}"`),
  ];
  return `{${parts.join('')}}`;
}

const texts = Array.from({ length: count }, (_, at) => documentText(at));
const documents = texts.map((text) => JSON.parse(text) as Record<string, unknown>);

beforeAll(async () => {
  fixture = await startFixture();
  app = await fixture.newApp();
  await app.createCollection('mixed');
  await app.store('mixed', texts);
  const schemaJson = JSON.stringify({ fields: { at: { type: 'date' } } });
  await fixture.methods.updateCollection({ appId: app.appId, name: 'mixed', schemaJson, force: true });
  await app.createIndex('mixed', 'a');
  await app.createIndex('mixed', 'at');
  for (const fields of [
    ['a', 'b'],
    ['kind', 'a'],
    ['kind', 'at', 'b'],
    ['group', 'maybe'],
  ]) {
    await app.createComposite('mixed', fields);
  }
  const ref = (await findCollection(fixture.pool, await findApp(fixture.pool, app.appId), 'mixed'))!;
  await fixture.pool.query(`analyze a_${ref.appNumber}.c_${ref.number}`);
  await fixture.pool.query(`vacuum a_${ref.appNumber}.c_${ref.number}`);
  source = documentsRelation(ref, { includeHistory: false, includeDeleted: true });
  client = new Client({ connectionString: fixture.url });
  await client.connect();
});
afterAll(async () => {
  await client.end();
  await fixture.stop();
});

interface Asked {
  find: Record<string, unknown>;
  sort: string[];
}

const asked: Asked[] = [];
for (const fields of [['a'], ['at'], ['a', 'b'], ['group', 'maybe']]) {
  for (const sign of ['', '-']) asked.push({ find: {}, sort: fields.map((field) => `${sign}${field}`) });
}
for (const [find, fields] of [
  [{ kind: 'k2' }, ['a']],
  [{ kind: 'k1' }, ['at', 'b']],
  [{ kind: 'k1', at: null }, ['b']],
  [{ group: 'g2' }, ['maybe']],
] as const) {
  for (const sign of ['', '-']) asked.push({ find, sort: fields.map((field) => `${sign}${field}`) });
}

/** The documents in an order, as the language says. */
function expectedOrder({ find, sort }: Asked): Array<Record<string, unknown>> {
  const terms = parseSort(sort, 'sort');
  const matching = documents.filter((document) =>
    Object.entries(find).every(([name, value]) => (document[name] ?? null) === value),
  );
  return matching.sort((x, y) => {
    for (const { path, descending } of terms) {
      const order = sortOrder(follow(x, path), follow(y, path), descending, path[0] === 'at') ?? 0;
      if (order !== 0) return order;
    }
    const byId = (x['id'] as string) < (y['id'] as string) ? -1 : 1;
    return terms.at(-1)!.descending ? -byId : byId;
  });
}

const requestOf = ({ find, sort }: Asked, after: Position | undefined): PageRequest => ({
  find: parseFind(readJson(Buffer.from(JSON.stringify(find)), { maxDepth: 64 })),
  sort: parseSort(sort, 'sort'),
  limit: pageRows,
  offset: 0,
  after,
});

interface PlanNode {
  'Node Type': string;
  'Relation Name'?: string;
  'Actual Rows': number;
  'Actual Loops': number;
  'Rows Removed by Filter'?: number;
  'Rows Removed by Index Recheck'?: number;
  'Shared Hit Blocks': number;
  'Shared Read Blocks': number;
  Plans?: PlanNode[];
}

/** Rows that a plan reads of the table, and pages of table and indexes. */
function readBy(node: PlanNode): { rows: number; pages: number } {
  const pages = node['Shared Hit Blocks'] + node['Shared Read Blocks'];
  const removed = (node['Rows Removed by Filter'] ?? 0) + (node['Rows Removed by Index Recheck'] ?? 0);
  const own = node['Relation Name'] ? (node['Actual Rows'] + removed) * node['Actual Loops'] : 0;
  return { rows: (node.Plans ?? []).reduce((sum, plan) => sum + readBy(plan).rows, own), pages };
}

async function explain(
  text: string,
  values: readonly unknown[],
): Promise<{ rows: number; pages: number; plan: string }> {
  const { rows } = await client.query<{ 'QUERY PLAN': string | Array<{ Plan: PlanNode }> }>(
    `explain (analyze, costs off, timing off, buffers on, format json) ${text}`,
    [...values],
  );
  const found = rows[0]!['QUERY PLAN'];
  const [{ Plan: plan }] = (typeof found === 'string' ? JSON.parse(found) : found) as [{ Plan: PlanNode }];
  return { ...readBy(plan), plan: JSON.stringify(plan) };
}

/**
 * The places in an order behind which a page is read: in each part of it, and around the first and last long string.
 */
function placesIn(expected: ReadonlyArray<Record<string, unknown>>): number[] {
  const { length } = expected;
  const isLong = (document: Record<string, unknown>) =>
    [document['a'], document['b']].some((value) => String(value).length > 200);
  const around = [expected.findIndex(isLong), expected.findLastIndex(isLong)].flatMap((at) =>
    [-19, -1, 0, 1, 2, 3].map((more) => at + more),
  );
  const parts = Array.from({ length: 12 }, (_, at) => Math.floor((at * length) / 12) + at);
  return [0, ...parts, ...around.filter((at) => at > 0 && at < length)];
}

describe.each(asked.map((one) => [JSON.stringify(one), one] as const))('the order %s', (_, one) => {
  const scope = { terms: parseSort(one.sort, 'sort') };

  test('is read from its index, the rows of the page and no others', async () => {
    const expected = expectedOrder(one);
    const pages = placesIn(expected).map((place) => ({
      after: place === 0 ? undefined : positionOf(scope, { body: JSON.stringify(expected[place - 1]) }),
      ids: expected.slice(place, place + pageRows).map(({ id }) => id),
    }));
    for (const { after, ids } of pages) {
      const request = requestOf(one, after);
      const plan = planByPool(source, request);
      const compiled = pageStatement(plan).compile();
      const { rows } = await client.query<{ body: string; truncated?: boolean }>(compiled.text, compiled.values);
      const byText = rows.some(({ truncated }) => truncated === true) ? alternativePlan(plan) : undefined;
      const isSorted = byText !== undefined || plan.access.method === 'index_order_by_text';
      const last = byText ? pageStatement(byText).compile() : compiled;
      const found = byText ? (await client.query<{ body: string }>(last.text, last.values)).rows : rows;
      expect({ after, ids: found.map(({ body }) => (JSON.parse(body) as { id: string }).id) }).toEqual({ after, ids });

      // Where two ranges are merged, the first row of the other is read too; where a key is truncated, the strings with
      // it.
      const read = await explain(last.text, last.values);
      const isFew = read.rows <= pageRows + (isSorted ? 1 + sameHeadMax : 1);
      const arePages = read.pages <= 2 * pageRows;
      expect({ after, ...(isFew && arePages ? {} : read) }).toEqual({ after });
    }
  });

  test('is read alone by its index where no key is truncated', async () => {
    const expected = expectedOrder(one);
    const connection = new Client({ connectionString: fixture.url });
    await connection.connect();
    try {
      for (const [name, value] of Object.entries(indexReadSettings)) await connection.query(`set ${name} = ${value}`);
      const prepared = new Map<string, string>();
      for (const place of placesIn(expected)) {
        const after = place === 0 ? undefined : positionOf(scope, { body: JSON.stringify(expected[place - 1]) });
        const read = indexRead(planPage(source, requestOf(one, after)));
        const isTruncated = after?.values.some((text) => (text?.length ?? 0) > 200);
        expect(read === undefined).toBe(isTruncated === true);
        if (!read) continue;
        if (!prepared.has(read.text)) {
          prepared.set(read.text, `p${prepared.size}`);
          await connection.query(`prepare ${prepared.get(read.text)} as ${read.text}`);
        }
        const name = prepared.get(read.text)!;
        const values = read.values.map((value) => escapeLiteral(String(value))).join(', ');
        const { rows } = await connection.query<{ body: string | null }>(`execute ${name}(${values})`);
        if (rows.every(({ body }) => body !== null)) {
          const ids = expected.slice(place, place + pageRows).map(({ id }) => id);
          expect(rows.map(({ body }) => (JSON.parse(body!) as { id: string }).id)).toEqual(ids);
        }
        const explained = await connection.query<{ 'QUERY PLAN': string }>(
          `explain (analyze, costs off, timing off, buffers off) execute ${name}(${values})`,
        );
        const plan = explained.rows.map((line) => line['QUERY PLAN']).join('\n');
        expect(plan).not.toMatch(/Seq Scan|Bitmap|Disabled|Incremental/);
        const scans = [...plan.matchAll(/Scan.* on c_.*rows=([\d.]+)|Rows Removed by \w+: (\d+)/g)];
        const sum = scans.reduce((total, [, rows, removed]) => total + Number(rows ?? removed), 0);
        expect({ sum, ...(sum <= pageRows + 1 ? {} : { plan }) }).toEqual({ sum });
      }
    } finally {
      await connection.end();
    }
  });
});
