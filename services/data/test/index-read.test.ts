import { createLogger } from '@granary/shared/logger';
import { JsonNumber, type JsonValue } from '@granary/shared/json/value';
import { partsOf } from '@granary/testing/seeds';
import { size } from '@granary/testing/size';
import { Multiplexer } from '../src/postgres/multiplexer';
import { findCollection } from '../src/catalog/collection';
import { and, type Condition } from '../src/query/language/condition';
import { isOperator } from '../src/query/language/value-operators';
import { planPage } from '../src/query/plan/page-plan';
import { indexRead } from '../src/query/sql/index-scan-sql';
import { conditionOfText } from '../src/query/language/url-filter';
import type { IndexReads, ReadDatabases } from '../src/query/execute/read-scheduler';
import { readDocuments, type ReadOptions } from '../src/query/execute/read-page';
import { documentsRelation, type Relation } from '../src/query/plan/relation';
import { startFixture, type Fixture, type Page, type TestApp } from './support/query-fixture';
import { findApp } from '../src/catalog/app';
import { isTimed } from '../src/values/instant';
import { seededRandom, type Random } from './support/random';

let fixture: Fixture;
const over = (reads: IndexReads): ReadDatabases => ({
  pool: fixture.pool,
  shortPages: reads,
  longPages: reads,
  mayReadPrivate: true,
  resolve: (find) => find,
});
let multiplexer: Multiplexer;
let answeredByIndex = 0;
/** The two ways that a read can go: by an index where one answers, and by any statement. */
let byIndex: ReadDatabases;
let byPool: ReadDatabases;
beforeAll(async () => {
  fixture = await startFixture();
  multiplexer = new Multiplexer({
    url: fixture.url,
    size: 1,
    applicationName: 'test',
    log: createLogger('data', 'silent'),
  });
  byIndex = over({
    read: async (text, values, reader) => {
      const page = await multiplexer.read(text, values, reader);
      if (page !== undefined) answeredByIndex += 1;
      return page;
    },
  });
  byPool = over({ read: () => Promise.resolve(undefined as never) });
});
afterAll(async () => {
  await multiplexer.end();
  await fixture.stop();
});

const readCount = size({ run: 60, long: 400 });
const statementCount = size({ run: 1_000, long: 5_000 });

// Keys are cut at 256 bytes, and longer than 252 they may be cut.
const x = 'x'.repeat(250);
const strings = [
  '',
  '1',
  'true',
  'null',
  '1e400',
  '"',
  '\\',
  'é',
  '€😀',
  "'; drop",
  '$1',
  x,
  `${x}ab`,
  `${x}abc`,
  `${x}a😀z`,
  `${x}€€€`,
  // The same keys.
  ...['z', 'y', 'x', 'w'].map((end) => `${x}abcdef${end}`),
];
const texts = [
  ...strings.map((text) => JSON.stringify(text)),
  '1',
  '1.0',
  '1e0',
  '-0',
  '1e308',
  '12345678901234567890',
  'true',
  'false',
  '"2024-01-01T00:00:00Z"',
  '1704067200',
];
const compounds = ['null', '[]', '[1]', '{}', '{"y":1}'];

async function sourceOf(app: TestApp, collection: string, includeDeleted: boolean): Promise<Relation> {
  const ref = (await findCollection(fixture.pool, await findApp(fixture.pool, app.appId), collection))!;
  return documentsRelation(ref, { includeHistory: false, includeDeleted });
}

const fields = ['a', 'b', 'n.x', 'd'];
const instants = texts.filter((text) => text.startsWith('"') && isTimed(JSON.parse(text) as string));
const firstPage: Omit<ReadOptions, 'find'> = {
  sort: [],
  projection: 'all',
  limit: 10,
  offset: 0,
  count: 'exact',
  cursor: undefined,
};

/** Documents, and reads of them by indexes or without. */
function readGenerator(random: Random) {
  const pick = <T>(choices: readonly T[]): T => choices[random(choices.length)]!;

  /** 300 in which each field is a scalar, something else, or missing; some are deleted, some large. */
  function makeDocuments(): string[] {
    const member = (name: string, lacking: number): string => {
      if (random(lacking) > 0) return `,"${name}":${pick(random(2) === 0 ? texts : texts.slice(0, 4))}`;
      return random(2) === 0 ? '' : `,"${name}":${pick(compounds)}`;
    };
    return Array.from({ length: 300 }, (_, at) => {
      const more = `${random(10) === 0 ? ',"deleted":true' : ''}${at === 77 ? `,"fill":"${'é'.repeat(9_000)}"` : ''}`;
      return `{"id":"${pick(['k', 'K', 'é'])}${at}"${member('a', 9)}${member('b', 12)},"n":{"z":0${member('x', 30)}}${member('d', 9)}${more}}`;
    });
  }

  function equality(): Condition {
    const path = pick(['a', 'b', 'n.x', 'd', 'a', 'b', 'id']);
    if (path === 'id') return { kind: 'is', path: ['id'], value: pick([`k${random(300)}`, new JsonNumber('1'), '']) };
    // A date is not compared with what is no instant.
    const text = path === 'd' ? pick(instants) : pick(random(2) === 0 ? texts : texts.slice(0, 4));
    // As endpoint 3 reads it, or as a `find` has it.
    if (random(2) === 0)
      return conditionOfText(
        path.split('.'),
        isOperator,
        text.startsWith('"') ? (JSON.parse(text) as string) : text,
        pick(['any', 'string']),
        path,
      );
    const scalar = /^[-\d]/.test(text) ? new JsonNumber(text) : (JSON.parse(text) as JsonValue);
    return { kind: 'is', path: path.split('.'), value: scalar };
  }

  function request(): ReadOptions {
    const descending = random(2) === 0;
    return {
      find: and(...Array.from({ length: pick([0, 1, 1, 1, 2]) }, equality)),
      sort: Array.from({ length: random(3) }, () => ({
        path: pick([...fields, 'id']).split('.'),
        descending: random(6) === 0 ? !descending : descending,
      })),
      projection: 'all',
      limit: random(2) === 0 ? 3 + random(5) : 1 + random(100),
      offset: random(3) === 0 ? random(20) : 0,
      count: 'exact',
      cursor: undefined,
    };
  }

  return { pick, makeDocuments, request };
}

/** A collection with indexes over most of the fields. */
async function makeCollection(documents: readonly string[]): Promise<TestApp> {
  const app = await fixture.newApp();
  await app.createCollection('c');
  await app.store('c', documents);
  await fixture.methods.updateCollection({
    appId: app.appId,
    name: 'c',
    schemaJson: JSON.stringify({ fields: { d: { type: 'date' } } }),
    force: true,
  });
  for (const field of ['a', 'b', 'd']) await app.createIndex('c', field);
  for (const composite of [
    ['a', 'b'],
    ['b', 'n.x'],
    ['n.x', 'a', 'b'],
    ['b', 'd'],
  ])
    await app.createComposite('c', composite);
  return app;
}

test.each(partsOf('reads by an index', readCount))(
  'what an index answers alone is what any other statement answers, byte for byte and page after page: $cases reads (seed $seed)',
  async ({ seed, cases }) => {
    const { pick, makeDocuments, request } = readGenerator(seededRandom(seed));
    const app = await makeCollection(makeDocuments());
    const sources = [await sourceOf(app, 'c', false), await sourceOf(app, 'c', true)];
    answeredByIndex = 0;
    let pages = 0;
    for (let round = 0; round < cases; round += 1) {
      const source = pick(sources);
      let options = request();
      for (;;) {
        const answers = [await readDocuments(byIndex, source, options), await readDocuments(byPool, source, options)];
        const [first, second] = answers.map((bytes) => bytes.toString());
        expect({ round, options, answer: first }).toEqual({ round, options, answer: second });
        pages += 1;
        const cursor = (JSON.parse(first!) as Page)['next_cursor'] as string | undefined;
        if (cursor === undefined) break;
        options = { ...options, cursor, offset: 0 };
      }
    }
    expect(pages).toBeGreaterThan(2 * cases);
    expect(answeredByIndex).toBeGreaterThan(cases / 5);
  },
);

test.each(partsOf('statements by an index', statementCount))(
  'its statement depends on the names in a request and on nothing else of it: $cases requests (seed $seed)',
  async ({ seed, cases }) => {
    const { request } = readGenerator(seededRandom(seed));
    const app = await makeCollection([]);
    const source = await sourceOf(app, 'c', false);
    const byShape = new Map<string, Set<string>>();
    for (let round = 0; round < cases; round += 1) {
      const options = request();
      const read = indexRead(planPage(source, { ...options, after: undefined }));
      if (!read) continue;
      const conditions = options.find.kind === 'and' ? options.find.conditions : [options.find];
      const names = conditions.map((condition) => ('path' in condition ? condition.path : ['']).join('.'));
      const shape = JSON.stringify([names.sort(), options.sort]);
      byShape.set(shape, (byShape.get(shape) ?? new Set()).add(read.text));
      expect(read.text).not.toMatch(/drop|xxx|\P{ASCII}/u);
    }
    expect(byShape.size).toBeGreaterThan(20);
    for (const [shape, statements] of byShape) expect([shape, statements.size]).toEqual([shape, 1]);
  },
);

test('a record that is selected from is read by the index too, and the cursor knows its place', async () => {
  const app = await fixture.newApp();
  await app.createCollection('c');
  await app.createComposite('c', ['a', 'b']);
  await app.store(
    'c',
    Array.from({ length: 9 }, (_, at) => `{"id":"${at}","a":"é","b":${at}}`),
  );
  const body = { root: `${app.appId}::c`, find: { a: 'é' }, sort: ['-b'], select: ['id'], limit: 4 };
  const first = await app.list(body);
  expect(first.records).toEqual(['8', '7', '6', '5'].map((id) => ({ id })));
  const second = await app.list({ ...body, cursor: first['next_cursor'] });
  expect(second.records).toEqual(['4', '3', '2', '1'].map((id) => ({ id })));
});

test('an id beside another field is found, also where an index has both', async () => {
  const app = await fixture.newApp();
  await app.createCollection('c');
  await app.createComposite('c', ['a', 'id']);
  await app.createComposite('c', ['id', 'b']);
  const ids = ['first', '123', 'true', '1.0', '"first"', 'null'];
  await app.store(
    'c',
    ids.map((id) => `{"id":${JSON.stringify(id)},"a":"x","b":1}`),
  );
  for (const id of ids) {
    for (const more of [{ a: 'x' }, { b: 1 }]) {
      const page = await app.list({ root: `${app.appId}::c`, find: { ...more, id }, select: ['id'] });
      expect([page.records, page['total']]).toEqual([[{ id }], 1]);
    }
    const page = await app.read('readCollection', 'c', { a: 'x', id, select: 'id' });
    expect(page.records).toEqual([{ id }]);
  }
});

test('fields with odd names make no request look like another', async () => {
  const app = await fixture.newApp();
  await app.createCollection('c');
  for (const fields of [
    ['a', 'x'],
    ['a', '+', 'x'],
    ['a', '+x'],
  ])
    await app.createComposite('c', fields);
  await app.store('c', [
    '{"id":"1","a":"v","x":"v"}',
    '{"id":"2","a":"v","x":"v","+":"v"}',
    '{"id":"3","a":"v","+x":"v"}',
  ]);
  const ids = async (find: object, sort: string[]) =>
    (await app.list({ root: `${app.appId}::c`, find, sort })).records.map(({ id }) => id);
  for (let repeated = 0; repeated < 2; repeated += 1) {
    expect(await ids({ a: 'v' }, ['x'])).toEqual(['1', '2', '3']);
    expect(await ids({ a: 'v', '+': 'v', x: 'v' }, [])).toEqual(['2']);
    expect(await ids({ a: 'v', '+x': 'v' }, [])).toEqual(['3']);
    expect(await ids({ a: 'v' }, ['+x'])).toEqual(['3', '1', '2']);
  }
});

test('a page with a large record is left to a statement that knows how much may be pulled', async () => {
  const app = await fixture.newApp();
  await app.createCollection('c');
  await app.createIndex('c', 'a');
  const document = (id: string, a: string, sizeBytes: number) =>
    `{"id":"${id}","a":"${a}","fill":"${'x'.repeat(sizeBytes)}"}`;
  await app.store('c', [document('1', 's', 16_000), document('2', 's', 16_000), document('3', 'l', 17_000)]);
  const source = await sourceOf(app, 'c', false);
  const answered = async (a: string): Promise<[number, unknown]> => {
    answeredByIndex = 0;
    const find: Condition = { kind: 'is', path: ['a'], value: a };
    const page = await readDocuments(byIndex, source, { ...firstPage, find });
    return [answeredByIndex, (JSON.parse(page.toString()) as Page).records.length];
  };
  expect(await answered('s')).toEqual([1, 2]);
  expect(await answered('l')).toEqual([0, 1]);
});

test('what turns out not to be short is read by another statement; any other failure is one', async () => {
  const app = await makeCollection(Array.from({ length: 10 }, (_, at) => `{"id":"k${at}","a":""}`));
  const source = await sourceOf(app, 'c', false);
  const options: ReadOptions = { ...firstPage, find: { kind: 'is', path: ['a'], value: '' } };
  const failing = (code: string): ReadDatabases =>
    over({ read: () => Promise.reject(Object.assign(new Error(code), { severity: 'ERROR', code })) });
  const expected = await readDocuments(byPool, source, options);
  expect(expected.length).toBeGreaterThan(100);
  expect(await readDocuments(failing('57014'), source, options)).toEqual(expected);
  await expect(readDocuments(failing('42703'), source, options)).rejects.toThrow('42703');
});
