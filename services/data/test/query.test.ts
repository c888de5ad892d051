import { mkdtemp, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { readJson } from '@granary/shared/json/value';
import { Compiler } from '../src/query/sql/filter-sql';
import { findCollection } from '../src/catalog/collection';
import { parseInstant } from '../src/values/instant';
import { parseFind } from '../src/query/language/filter';
import { planByPool } from './support/plans';
import { pageStatement, sortedRows } from '../src/query/sql/page-sql';
import { documentsRelation } from '../src/query/plan/relation';
import { scaledMs } from '@granary/shared/testing/speed';
import { startFixture, type Fixture, type Page, type TestApp } from './support/query-fixture';
import { addresses, countryCodes, countryLines, networks } from './support/network-reference';
import { datasets, follow, holds, sortOrder, type Meaning } from './support/query-reference';
import { withReferences } from '../src/query/language/references';
import { noIdempotency } from './support/data-service';
import { findApp } from '../src/catalog/app';
import { seededRandom } from './support/random';

/** With TEST_LONG the differential tests take as many filters and orders as run for an hour. */
const isLong = process.env['TEST_LONG'] === '1';
const [filterCount, orderCount] = isLong ? [20_000, 3_000] : [800, 150];
const longTimeoutMs = scaledMs(isLong ? 7_200_000 : 600_000);

let fixture: Fixture;
beforeAll(async () => {
  fixture = await startFixture({ COUNTRY_NETWORKS_FILE: await networksFile() });
});
afterAll(() => fixture.stop());

/** A file with the networks by country that the reference knows. */
async function networksFile(): Promise<string> {
  const file = join(await mkdtemp(join(tmpdir(), 'granary-networks-')), 'networks.csv');
  await writeFile(file, countryLines.join('\n'));
  return file;
}

const random = seededRandom(Number(process.env['SEED'] ?? 20_251));
const pick = <T>(choices: readonly T[]): T => choices[random(choices.length)]!;

// Around 256 bytes strings are cut in keys, by characters of one to four bytes.
const head = 'x'.repeat(250);
const strings = [
  ...[
    '',
    'a',
    'A',
    'b',
    'ab',
    'Éa',
    'é',
    '10',
    'true',
    'null',
    '\\',
    '"',
    "'; drop",
    '😀',
    '\ue000',
    '\ud7ffx',
    '\ud7ff',
    '\u{10ffff}',
    'a\u{10ffff}',
    'a\u{10ffff}b',
    'a\nb',
  ],
  ...['', 'a', 'ab', 'abcdef', 'abcdeg', 'abcdéx', 'abcdéy', 'abcd€', 'abc😀', 'abcdefg', '😀😀'].map(
    (end) => head + end,
  ),
];
const expressions = [
  ...[
    '',
    '^a',
    '^ab',
    '^x',
    'a$',
    '^a$',
    'b',
    '^',
    '\\d',
    '^k1',
    '(?i)é',
    '/éA/i',
    '/^A/i',
    '/a/',
    '[^a]$',
    '(?s)^.$',
    'a.b',
  ],
  ...[
    '(?s)a.b',
    '(?m)^b$',
    '\\bk',
    '^(?:a|true)',
    `^${head.slice(0, 40)}`,
    `x{250}abcd`,
    `^${'x{50}'.repeat(5)}abcd`,
    '^2024-',
  ],
  ...['😀', '^\\p{L}+$', '[^[:ascii:]]', '$a', '^\\Q"', "^'; drop$", '^null$', '^\\\\'],
];
const dates = [
  ...['2024-01-01T00:00:00Z', '2024-01-01T01:00:00+01:00', '2023-12-31T23:59:59.999999Z', '2024-02-30T00:00:00Z'],
  ...['1969-12-31t23:59:59.5z', '2024-01-01', 'soon', '2024-01-01T00:00:00.1234567Z', '2024-06-01 12:00:00-15:30'],
];
const numbers = [0, 1, -1, 2.5, 100, 10, 0.1, 1704067200, 1e20, -1e-7];
const scalars = (): unknown =>
  pick([pick(strings), pick(strings), pick(addresses), pick(numbers), pick(numbers), true, false]);
const values = (depth = 0): unknown => {
  const kind = random(depth > 1 ? 8 : 12);
  if (kind < 7) return scalars();
  if (kind === 7) return null;
  if (kind < 10) return Array.from({ length: random(4) }, () => values(depth + 1));
  return Object.fromEntries(Array.from({ length: random(3) }, () => [pick(['x', 'y', '0', '01']), values(depth + 1)]));
};

const paths = ['a', 'b', 'n.x', 'n.0', 'n.x.0', 'n.01', 'n.x.y', 'd', 'id', 'gone', 'e'];
const dateFields = new Set(['d']);

function makeDocument(at: number): Record<string, unknown> {
  const document: Record<string, unknown> = { id: `${pick(['k', 'K', 'é'])}${at}` };
  if (random(8) > 0) document['a'] = random(3) === 0 ? values() : scalars();
  if (random(8) > 0) document['b'] = values();
  if (random(6) > 0)
    document['n'] = random(3) === 0 ? values() : { x: values(), '01': 1, ...(random(2) ? { 0: 'zero' } : {}) };
  if (random(6) > 0) document['d'] = random(4) > 0 ? pick(dates) : scalars();
  if (random(2) > 0) document['e'] = pick(numbers);
  return document;
}

const spelled = new Map<string, string[]>([
  ['is', ['is', 'eq', '$eq']],
  ['isNot', ['isNot', 'ne', '$ne']],
  ['in', ['in', '$in']],
  ['notIn', ['notIn', '$nin']],
  ['exists', ['exists', '$exists']],
  ['>', ['greaterThan', 'gt', '$gt']],
  ['>=', ['greaterThanOrEqual', 'gte', '$gte']],
  ['<', ['lessThan', 'lt', '$lt']],
  ['<=', ['lessThanOrEqual', 'lte', '$lte']],
  ['between', ['between', 'betweenOp', '$between']],
  ['contains', ['includes', 'contains', '$contains']],
  ['CIDR', ['CIDR', 'cidr']],
  ['regExpMatches', ['regExpMatches', '$regExpMatches', '$regex']],
]);
const operators = [
  ...['is', 'is', 'isNot', 'in', 'notIn', 'isNull', 'isNotNull', 'exists', '>', '>=', '<', '<=', 'between'],
  ...['contains', 'startsWith', 'endsWith', 'includesCaseInsensitive', 'regExpMatches'],
  ...['CIDR', 'CIDR', 'isLocalIp', 'isExternalIp', 'inCountry', 'inDataset', 'inDataset', 'b64'],
];

/** A filter as it would be sent, and what it means. */
function makeFilter(depth = 0): { find: Record<string, unknown>; meaning: Meaning } {
  if (depth < 3 && random(3) === 0) {
    const logical = pick(['and', 'or', 'not', '$and', '$or', '$not'] as const);
    const parts = Array.from({ length: random(4) }, () => makeFilter(depth + 1));
    const meanings = parts.map(({ meaning }) => meaning);
    const meaning = logical.endsWith('and')
      ? { all: meanings }
      : logical.endsWith('or')
        ? { any: meanings }
        : { none: meanings };
    return { find: { [logical]: parts.map(({ find }) => find) }, meaning };
  }
  const path = pick(paths);
  const operator = pick(operators);
  const scalar = (): unknown =>
    path === 'd' && random(3) > 0 ? pick(dates) : path === 'id' ? `k${random(400)}` : scalars();
  const operand = makeOperand(operator, scalar);
  const meaning = { path: path.split('.'), operator, operand };
  const name = pick(spelled.get(operator) ?? [operator]);
  const sent =
    operator === 'between'
      ? pick([operand, { from: (operand as unknown[])[0], to: (operand as unknown[])[1] }])
      : operand;
  const dollar = name.startsWith('$') ? name : `$${name}`;
  const way = random(4);
  if (way === 0 && !/[<>]/.test(dollar)) return { find: { [`${path}.${dollar}`]: sent }, meaning };
  if (way === 1) {
    const nested = path.split('.').reduceRight<unknown>((inner, step) => ({ [step]: inner }), { [name]: sent });
    return { find: nested as Record<string, unknown>, meaning };
  }
  if (operator === 'is' && (typeof operand !== 'object' || operand === null))
    return { find: { [path]: operand }, meaning };
  return { find: { [path]: { [name]: sent } }, meaning };
}

function makeOperand(operator: string, scalar: () => unknown): unknown {
  switch (operator) {
    case 'is':
    case 'isNot':
    case 'contains':
      return random(5) === 0 ? values() : scalar();
    case 'in':
    case 'notIn':
      return Array.from({ length: random(5) }, () => (random(6) === 0 ? values() : scalar()));
    case 'isNull':
    case 'isNotNull':
    case 'exists':
      return random(2) === 0;
    case 'isLocalIp':
    case 'isExternalIp':
      return random(2) === 0;
    case 'CIDR':
      return random(3) === 0 ? pick(networks) : Array.from({ length: random(4) }, () => pick(networks));
    case 'inCountry':
      return random(2) === 0 ? pick(countryCodes) : Array.from({ length: random(3) }, () => pick(countryCodes));
    case 'inDataset':
      return pick(Object.keys(datasets));
    case 'b64':
      return Buffer.from(pick(strings)).toString(pick(['base64', 'base64url']));
    case 'between':
      return [scalar(), scalar()];
    case 'startsWith':
    case 'endsWith':
    case 'includesCaseInsensitive':
      return pick(strings);
    case 'regExpMatches':
      return pick(expressions);
    default:
      return scalar();
  }
}

/** The same documents twice: in a collection with indexes over most fields, and in one without. */
async function twins(documents: ReadonlyArray<Record<string, unknown>>): Promise<TestApp> {
  const app = await fixture.newApp();
  // 1 is also written 1.0 and 100 as 1e2: the same numbers.
  const texts = documents.map((document) =>
    JSON.stringify(document).replaceAll(':1,', ':1.0,').replaceAll(':100,', ':1e2,'),
  );
  for (const name of ['plain', 'keyed']) {
    await app.createCollection(name);
    await app.store(name, texts);
    // What is there already is not checked against the schema, so other text and numbers stand among the dates.
    await fixture.methods.updateCollection({
      appId: app.appId,
      name,
      schemaJson: JSON.stringify({ fields: { d: { type: 'date' } } }),
    });
  }
  for (const [name, members] of Object.entries(datasets)) {
    const body = Buffer.from(JSON.stringify({ values: members }).replaceAll(',2.5,', ',25e-1,'));
    await fixture.methods.putDataset({ appId: app.appId, name, body, idempotency: noIdempotency });
  }
  for (const path of ['a', 'b', 'n.x', 'n.0', 'd', 'gone', 'e']) await app.createIndex('keyed', path);
  for (const fields of [
    ['e', 'a'],
    ['a', 'e'],
    ['b', 'd'],
    ['e', 'n.x', 'd'],
    ['n.0', 'id'],
  ]) {
    await app.createComposite('keyed', fields);
  }
  return app;
}

const documents = Array.from({ length: 400 }, (_, at) => makeDocument(at));

test(
  'every filter finds exactly the records that its meaning holds for, with and without indexes',
  async () => {
    const app = await twins(documents);
    for (let round = 0; round < filterCount; round += 1) {
      const { find, meaning } = makeFilter();
      const expected = documents.filter((document) => holds(meaning, document, dateFields)).map(({ id }) => id);
      for (const name of ['plain', 'keyed']) {
        const body = { root: `${app.appId}::${name}`, find, select: ['id'], limit: 1_000 };
        const { records, total } = await app.list(body);
        const found = records.map(({ id }) => id);
        const difference = {
          name,
          find,
          extra: found.filter((id) => !expected.includes(id as string)),
          lacking: expected.filter((id) => !found.includes(id)),
        };
        expect(difference).toEqual({ name, find, extra: [], lacking: [] });
        expect(total).toBe(expected.length);
      }
    }
  },
  longTimeoutMs,
);

test('a walk by cursor gives every untouched record once, in order, whatever is written meanwhile', async () => {
  const app = await twins(documents);
  for (let round = 0; round < 60; round += 1) {
    const sort = makeSort(round);
    const { find } = pick([makeFilter, makeFixing, makeFixing, () => ({ find: {} })])();
    const names = sort.map(({ path, descending }) => (descending ? `-${path}` : path));
    for (const name of ['plain', 'keyed']) {
      const body = { root: `${app.appId}::${name}`, find, sort: names };
      const whole = idsOf(await app.list({ ...body, limit: 1_000 }));
      const walked: unknown[] = [];
      const added = new Set<unknown>();
      let cursor: unknown;
      for (let pages = 0; pages <= whole.length; pages += 1) {
        const page = await app.list({ ...body, limit: 1 + random(50), ...(cursor === undefined ? {} : { cursor }) });
        expect([page.page, page.total === null]).toEqual([cursor === undefined ? 1 : null, false]);
        walked.push(...idsOf(page));
        cursor = page['next_cursor'];
        if (cursor === undefined) break;
        if (random(4) > 0) continue;
        const document = { ...makeDocument(0), d: pick(dates.slice(0, 3)), id: `new${round}-${pages}-${name}` };
        added.add(document.id);
        await app.store(name, [JSON.stringify(document)]);
      }
      const untouched = walked.filter((id) => !added.has(id));
      expect({ name, names, find, walked: untouched }).toEqual({ name, names, find, walked: whole });
      for (const id of added) await fixture.pool.query(await deletion(app, name), [id]);
    }
  }
});

/** Takes a document away for good, which no call does: so each round begins with the same documents. */
async function deletion(app: TestApp, name: string): Promise<string> {
  const handle = (await findCollection(fixture.pool, await findApp(fixture.pool, app.appId), name))!;
  return `with gone as (delete from a_${handle.appNumber}.c_${handle.number} where id = $1 returning id)
    update collection set row_count = row_count - (select count(*) from gone) where number = ${handle.number}`;
}

test(
  'every order is the one of the contract, with and without indexes, page by page',
  async () => {
    const app = await twins(documents);
    for (let round = 0; round < orderCount; round += 1) {
      const sort = makeSort(round);
      const { find, meaning } = pick([makeFilter, makeFixing, () => ({ find: {}, meaning: { all: [] } })])();
      const matching = documents.filter((document) => holds(meaning, document, dateFields));
      const [limit, offset] = [1 + random(60), random(3) === 0 ? random(420) : 0];
      for (const name of ['plain', 'keyed']) {
        const names = sort.map(({ path, descending }) => (descending ? `-${path}` : path));
        const body = { root: `${app.appId}::${name}`, find, sort: names };
        const whole = await app.list({ ...body, limit: 1_000 });
        expect(whole.records).toHaveLength(matching.length);
        for (let at = 1; at < whole.records.length; at += 1) {
          expect({ name, names, order: orderOf(sort, whole.records[at - 1]!, whole.records[at]!) }).toEqual({
            name,
            names,
            order: 'right',
          });
        }
        const page = await app.list({ ...body, limit, offset });
        expect({ name, names, limit, offset, ids: idsOf(page) }).toEqual({
          name,
          names,
          limit,
          offset,
          ids: idsOf(whole).slice(offset, offset + limit),
        });
        expect(page.total).toBe(matching.length);
      }
    }
  },
  longTimeoutMs,
);

/** Any order, or one that a composite index may serve. */
function makeSort(round: number): Array<{ path: string; descending: boolean }> {
  const descending = random(2) === 0;
  if (round % 2 === 0) {
    return pick([
      ['e', 'a'],
      ['a', 'e'],
      ['b', 'd'],
      ['e', 'n.x', 'd'],
    ]).map((path) => ({ path, descending }));
  }
  return Array.from({ length: 1 + random(round % 3 === 0 ? 3 : 1) }, () => ({
    path: pick(paths),
    descending: random(2) === 0,
  }));
}

/** A filter that fixes a field of a composite index, and its meaning. */
function makeFixing(): ReturnType<typeof makeFilter> {
  const path = pick(['e', 'a', 'b', 'n.0']);
  const operand = path === 'e' ? pick(numbers) : path === 'n.0' ? 'zero' : scalars();
  const fixing = { find: { [path]: operand }, meaning: { path: path.split('.'), operator: 'is', operand } };
  if (random(3) > 0) return fixing;
  const other = makeFilter(2);
  return { find: { and: [fixing.find, other.find] }, meaning: { all: [fixing.meaning, other.meaning] } };
}

const idsOf = (page: Page): unknown[] => page.records.map(({ id }) => id);

function orderOf(
  sort: ReadonlyArray<{ path: string; descending: boolean }>,
  a: unknown,
  b: unknown,
): 'right' | 'wrong' {
  for (const { path, descending } of sort) {
    const steps = path.split('.');
    const order = sortOrder(follow(a, steps), follow(b, steps), descending, dateFields.has(path));
    if (order === undefined || order < 0) return 'right';
    if (order > 0) return 'wrong';
  }
  const ids = [a, b].map((record) => Buffer.from((record as { id: string }).id));
  const order = Buffer.compare(ids[0]!, ids[1]!);
  return order < 0 !== sort.at(-1)!.descending ? 'right' : 'wrong';
}

test('no text of a caller is ever part of a statement', async () => {
  const app = await fixture.newApp();
  await app.createCollection('c', { fields: { 'canary.n': { type: 'date' } } });
  await app.createIndex('c', 'canary1');
  await app.createIndex('c', 'canary.n');
  await app.createComposite('c', ['canary0', 'canary1']);
  const handle = (await findCollection(fixture.pool, await findApp(fixture.pool, app.appId), 'c'))!;
  const canary = (): string => `canary${random(3)}`;
  const table = { appNumber: 1n, tableNumber: 1n };
  const everything = { hasCountries: true, tables: new Map([0, 1, 2].map((n) => [`canary${n}`, table])) };
  const texts = new Set<string>();
  let withCanary = 0;
  for (let round = 0; round < 20_000; round += 1) {
    const { find } = makeFilter();
    const kept: string[] = [];
    // These take none but their own operands.
    const ownOperand = /"(?:[^"]*\$)?(?:CIDR|cidr|inCountry|b64)":(?:"[^"]*"|\[[^\]]*\])/g;
    const text = JSON.stringify(find)
      .replaceAll(ownOperand, (operand) => `"kept":${kept.push(operand.replace(/"[^"]*\$/, '"$')) - 1}`)
      .replaceAll(/"(?:a|b|n|x|d|gone|e)(?=["\\.])/g, () => `"${canary()}`)
      .replaceAll(/(?<="):"[^"\\]*"/g, () => `:"${canary()}"`)
      .replaceAll(/(?<=[[,])"[^"\\]*"(?=[\],])/g, () => `"${canary()}"`)
      .replaceAll(/"kept":(\d+)/g, (_, at: string) => `"${canary()}":{${kept[Number(at)]!}}`);
    const condition = withReferences(parseFind(readJson(Buffer.from(text), { maxDepth: 64 })), everything);
    const source = documentsRelation(handle, { includeHistory: round % 5 === 0, includeDeleted: round % 2 === 0 });
    const sort = [canary(), canary()].map((name) => ({ path: [name], descending: true }));
    const value = () => pick(['"canary"', '["canary"]', '1', null]);
    const after = round % 3 === 0 ? { values: [value(), value()], id: 'canary', version: '1' } : undefined;
    const compiled = pageStatement(
      planByPool(source, {
        find: condition,
        sort,
        limit: 10,
        offset: 0,
        after,
      }),
    ).compile();
    texts.add(compiled.text);
    // In a key it is hexadecimal.
    if (/canary|63616e617279/.test(JSON.stringify(compiled.values.map(String)))) withCanary += 1;
    const { where, order } = sortedRows(source, condition, [{ path: ['canary', 'n'], descending: false }, ...sort]);
    texts.add(where.compile().text + order.compile().text);
  }
  // A field that the filter fixes needs no place in the order, and one with a key column no path.
  expect(withCanary).toBeGreaterThan(19_500);
  expect(texts.size).toBeGreaterThan(1_000);
  expect([...texts].filter((text) => /canary|\d\.\d+\.|::\d/i.test(text))).toEqual([]);
});

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

test('Postgres and the writer of keys read the same instant in every text', async () => {
  const digits = (count: number, bound: number): string => String(random(bound)).padStart(count, '0');
  const texts = Array.from({ length: 5_000 }, () => {
    const day = `${pick(['0000', '0001', '1969', '2024', '9999', digits(4, 10_000)])}-${digits(2, 14)}-${digits(2, 33)}`;
    const time = `${digits(2, 25)}:${digits(2, 61)}:${digits(2, 61)}${pick(['', '', '.', `.${digits(1 + random(7), 10)}`])}`;
    const zone = pick([
      'Z',
      'z',
      '',
      `+${digits(2, 17)}:${digits(2, 61)}`,
      `-${digits(2, 17)}:${digits(2, 60)}`,
      '+0100',
    ]);
    return `${pick(['', '', '', ' '])}${day}${pick(['T', 't', ' ', ''])}${time}${zone}${pick(['', '', '', '\n'])}`;
  });
  const found = await fixture.pool.query<{ instant: string | null }>(
    'select trim_scale(instant_of(text))::text as instant from unnest($1::text[]) with ordinality as t (text, n) order by n',
    [texts],
  );
  const instants = texts.map((text) => parseInstant(text) ?? null);
  expect(found.rows.map(({ instant }) => instant)).toEqual(instants);
  expect(instants.filter((instant) => instant !== null).length).toBeGreaterThan(200);
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
