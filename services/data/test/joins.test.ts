import { scaledMs } from '@granary/shared/testing/speed';
import { readJson } from '@granary/shared/json/value';
import { sql } from '@granary/shared/postgres/sql';
import { findApp } from '../src/catalog/app';
import { findCollections, type CollectionRef } from '../src/catalog/collection';
import { parseQuery } from '../src/query/language/filter';
import type { Join } from '../src/query/language/joins';
import { describeJoins, planJoins, type JoinTarget } from '../src/query/plan/join-plan';
import { documentsRelation, type DocumentsOptions } from '../src/query/plan/relation';
import { joinedPage } from '../src/query/sql/join-sql';
import { startFixture, type Fixture, type TestApp } from './support/query-fixture';
import { noIdempotency } from './support/data-service';
import { holds, Reference, withJoins, type Documents, type JoinMeaning, type Meaning } from './support/query-reference';
import { seededRandom } from './support/random';

const isLong = process.env['TEST_LONG'] === '1';
const caseCount = isLong ? 50_000 : 2_000;
const longTimeoutMs = scaledMs(isLong ? 7_200_000 : 600_000);

let fixture: Fixture;
let app: TestApp;
beforeAll(async () => {
  fixture = await startFixture();
  app = await fixture.newApp();
  for (const [which, documents] of [people, posts, notes].entries()) {
    // 1 is also written 1.0: the same number.
    const texts = documents.map((document) => JSON.stringify(document).replaceAll(':1,', ':1.0,'));
    for (const name of [`plain${which}`, `keyed${which}`]) {
      await app.createCollection(name);
      await app.store(name, texts);
      const schemaJson = JSON.stringify({ fields: { d: { type: 'date' } } });
      await fixture.methods.updateCollection({ appId: app.appId, name, schemaJson });
    }
  }
  for (const field of ['a', 'b', 'd', 'n.x']) {
    await app.createIndex('keyed0', field);
    await app.createIndex('keyed1', field);
  }
  for (const fields of [
    ['a', 'b'],
    ['b', 'd', 'a'],
    ['n.x', 'id'],
  ]) {
    await app.createComposite('keyed2', fields);
  }
}, longTimeoutMs);
afterAll(() => fixture.stop());

const random = seededRandom(Number(process.env['SEED'] ?? 20_262));
const pick = <T>(choices: readonly T[]): T => choices[random(choices.length)]!;

const head = 'x'.repeat(250);
const strings = [
  '',
  'a',
  'b',
  'é',
  '😀',
  'k1',
  'k2',
  'k3',
  '$5',
  ...['abcdef', 'abcdefg', 'abcdefh', '😀😀'].map((end) => head + end),
];
const dates = [
  '2024-01-01T00:00:00Z',
  '2024-01-01T01:00:00+01:00',
  '2023-12-31T23:59:59.9Z',
  '2024-01-01',
  'soon',
  '1970-01-01T00:00:01Z',
];
const scalar = (): unknown =>
  pick<unknown>([pick(strings), pick(strings), pick([0, 1, 2, -1.5, 1e20]), pick([0, 1, 2]), true, false]);
const value = (): unknown => {
  const kind = random(10);
  if (kind < 6) return scalar();
  if (kind === 6) return null;
  if (kind === 7) return { x: scalar() };
  return Array.from({ length: random(4) }, () => pick([scalar(), scalar(), pick(dates), null, { x: 1 }]));
};

const documentCount = 24;
function makeDocuments(): Array<Record<string, unknown>> {
  return Array.from({ length: documentCount }, (_, at) => {
    const document: Record<string, unknown> = { id: `k${at}` };
    if (random(6) > 0) document['a'] = value();
    if (random(6) > 0) document['b'] = random(3) === 0 ? `k${random(documentCount)}` : value();
    if (random(4) > 0) document['d'] = random(5) === 0 ? value() : pick(dates);
    if (random(4) > 0) document['n'] = { x: value() };
    if (random(2) > 0)
      document['tags'] = Array.from({ length: random(4) }, () => pick([`k${random(documentCount)}`, scalar(), null]));
    if (random(6) === 0) document['deleted'] = true;
    return document;
  });
}
const [people, posts, notes] = [makeDocuments(), makeDocuments(), makeDocuments()];
const dateFields = new Set(['d']);
const inOrder = (documents: ReadonlyArray<Record<string, unknown>>) =>
  [...documents].sort((a, b) => ((a['id'] as string) < (b['id'] as string) ? -1 : 1));
const collections = [people, posts, notes].map((documents) => ({ documents: inOrder(documents), dates: dateFields }));
const documentsOf =
  (withDeleted: boolean) =>
  (model: string): Documents => {
    const found = collections[Number(model.at(-1))]!;
    return withDeleted ? found : { ...found, documents: found.documents.filter(({ deleted }) => deleted !== true) };
  };

const paths = ['a', 'b', 'd', 'n.x', 'id', 'tags', 'gone'];
const comparisons: Array<readonly [string, string]> = [
  ['is', 'is'],
  ['is', '$eq'],
  ['is', 'is'],
  ['in', 'in'],
  ['in', '$in'],
  ['>', 'gt'],
  ['>=', 'gte'],
  ['<', 'lt'],
  ['<=', '$lte'],
];

/** A condition with a reference or without, as it is sent and what it means. */
function makeCondition(depth = 0): { find: Record<string, unknown>; meaning: Meaning } {
  if (depth < 2 && random(5) === 0) {
    const parts = Array.from({ length: 1 + random(2) }, () => makeCondition(depth + 1));
    const meanings = parts.map(({ meaning }) => meaning);
    const [name, meaning] = pick<[string, Meaning]>([
      ['and', { all: meanings }],
      ['or', { any: meanings }],
      ['not', { none: meanings }],
    ]);
    return { find: { [name]: parts.map(({ find }) => find) }, meaning };
  }
  const path = pick(paths);
  const [operator, spelling] = pick(comparisons);
  if (random(4) === 0) {
    const operand = operator === 'in' ? [scalar(), scalar()] : scalar();
    return { find: { [path]: { [spelling]: operand } }, meaning: { path: path.split('.'), operator, operand } };
  }
  const to = pick(operator === 'in' ? ['tags', 'tags', 'a', 'n.x', 'n.x.0'] : paths);
  const operand = `${pick(['$data', '$parent'])}.${to}`;
  const meaning = { path: path.split('.'), operator, operand: new Reference(to.split('.')) };
  if (operator === 'is' && random(2) === 0) return { find: { [path]: operand }, meaning };
  return { find: { [path]: { [spelling]: operand } }, meaning };
}

const everything = { find: {}, meaning: { all: [] } as Meaning };
const isFromA: Meaning = { path: ['a'], operator: '>=', operand: 'a' };

/** Joins of everything with everything, four deep, are more than a test can look at. */
const lookUpsMax = 1_500;
class TooMany extends Error {}

function counted(find: (model: string) => Documents): (model: string) => Documents {
  let lookUps = 0;
  return (model) => {
    lookUps += 1;
    if (lookUps > lookUpsMax) throw new TooMany();
    return find(model);
  };
}

function evaluated<T>(evaluate: () => T): T | undefined {
  try {
    return evaluate();
  } catch (error) {
    if (error instanceof TooMany) return undefined;
    throw error;
  }
}

const newBudget = () => ({ joins: 16 });

/** Names of joins; a field of the name gives way. */
const aliases = ['one', 'two', 'a', 'b', 'tags', 'naïve "name"\\'];

function makeJoins(level: number, budget: { joins: number }): { sent: Record<string, unknown>; joins: JoinMeaning[] } {
  const made: Array<{ join: JoinMeaning; sent: object; refersTo: Set<string> }> = [];
  const count = level > 4 ? 0 : level === 1 ? 1 + random(2) : random(3);
  for (let at = 0; at < count && budget.joins > 0; at += 1) {
    budget.joins -= 1;
    const alias = pick(aliases.filter((name) => made.every(({ join }) => join.alias !== name)));
    const conditions = Array.from({ length: pick(level === 1 ? [0, 1, 1, 2] : [1, 1, 2]) }, () => makeCondition());
    const [model, many] = [pick(['plain', 'keyed']) + random(3), random(3) > 0];
    const inner = makeJoins(level + 1, budget);
    const { select, selected } = makeSelect();
    const meaning = { all: conditions.map((one) => one.meaning) };
    const find = { ...(conditions.length === 0 ? {} : { and: conditions.map((one) => one.find) }), ...inner.sent };
    const sent = { resolve: { find, ...(selected ? { select: selected } : {}) }, model, ...(many ? {} : { many }) };
    const references = JSON.stringify(conditions.map((one) => one.find)).matchAll(/"\$(?:data|parent)\.(\w+)/g);
    const refersTo = new Set([...references].map(([, field]) => field!));
    made.push({ join: { alias, model, many, meaning, select, joins: inner.joins }, sent, refersTo });
  }
  // A reference to what another join adds is refused.
  const kept = made.filter(({ join, refersTo }) =>
    made.every((other) => other.join === join || !refersTo.has(other.join.alias)),
  );
  return {
    sent: Object.fromEntries(kept.map(({ join, sent }) => [join.alias, sent])),
    joins: kept.map(({ join }) => join),
  };
}

function makeSelect(): { select: JoinMeaning['select']; selected: unknown } {
  if (random(3) > 0) return { select: undefined, selected: undefined };
  const fields = ['id', 'a', 'd'].filter(() => random(2) === 0);
  if (fields.length === 0) return { select: undefined, selected: {} };
  const keeps = pick(['named', 'others'] as const);
  const object = Object.fromEntries(fields.map((field) => [field, keeps === 'named']));
  return {
    select: { keeps, fields },
    selected: keeps === 'named' ? pick<unknown>([object, fields, fields.join()]) : object,
  };
}

test(
  'every join gives the records that its meaning holds for, with and without indexes, up to four deep',
  async () => {
    let joined = 0;
    for (let round = 0; round < caseCount; round += 1) {
      const { sent, joins } = makeJoins(1, newBudget());
      const { select, selected } = makeSelect();
      const filter = pick([everything, everything, { find: { 'a.$gte': 'a' }, meaning: isFromA }]);
      const root = pick(['plain', 'keyed']) + random(3);
      const [limit, offset] = [1 + random(12), random(3) === 0 ? random(30) : 0];
      const query = { find: { ...filter.find, ...sent }, ...(selected ? { select: selected } : {}) };
      const isList = random(10) > 0;
      const documents = counted(documentsOf(isList));
      const matching = documents(root).documents.filter((document) => holds(filter.meaning, document, dateFields));
      const expected = evaluated(() =>
        matching.slice(offset, offset + limit).map((document) => withJoins(document, { select, joins }, documents)),
      );
      if (joins.length === 0 || !expected) continue;
      const page = isList
        ? await app.list({ root: `${app.appId}::${root}`, ...query, limit, offset })
        : await predefined(`q${round}`, root, query, { limit: `${limit}`, offset: `${offset}` });
      expect({ round, root, query, records: page.records }).toEqual({ round, root, query, records: expected });
      expect(page.total).toBe(matching.length);
      joined += joins.length;
    }
    expect(joined).toBeGreaterThan(caseCount / 2);
  },
  longTimeoutMs,
);

test('no text of a caller is ever part of a statement with joins', async () => {
  const owner = await findApp(fixture.pool, app.appId);
  const found = await findCollections(fixture.pool, owner, ['plain0', 'keyed0', 'keyed1', 'keyed2']);
  const texts = new Set<string>();
  let withCanary = 0;
  for (let round = 0; round < 3_000; round += 1) {
    const { sent } = makeJoins(1, newBudget());
    const { joins } = parseQuery(readJson(Buffer.from(JSON.stringify(withCanaries(sent))), { maxDepth: 64 }));
    if (joins.length === 0) continue;
    const options = { includeHistory: false, includeDeleted: round % 2 === 0 };
    const plans = planJoins(targetsOf(joins, () => ({ handle: pick(found), options })));
    const page = sql`select t.body from ${documentsRelation(found[0]!, options).table}`;
    const { text, values } = joinedPage(page, documentsRelation(found[0]!, options), plans, 1_000).compile();
    texts.add(text);
    if (/canary/.test(JSON.stringify(values.map(String)))) withCanary += 1;
  }
  expect([withCanary > 1_500, texts.size > 1_000]).toEqual([true, true]);
  expect([...texts].filter((text) => /canary/i.test(text))).toEqual([]);
});

test('a plan names the index of each join, or says that it scans', async () => {
  const [plain, keyed] = await Promise.all(
    ['plain0', 'keyed2'].map(async (name) =>
      findCollections(fixture.pool, await findApp(fixture.pool, app.appId), [name]).then(([handle]) => handle!),
    ),
  );
  const find = {
    byId: { resolve: { find: { id: '$data.b' } }, model: 'keyed2' },
    byKeys: {
      resolve: { find: { b: '$data.a', a: 1, inner: { resolve: { find: { a: '$data.a' } }, model: 'plain0' } } },
      model: 'keyed2',
    },
    byLeading: { resolve: { find: { a: { in: '$data.tags' } } }, model: 'keyed2' },
    byRange: { resolve: { find: { 'n.x': { gt: '$data.a' } } }, model: 'keyed2' },
    scanned: { resolve: { find: { tags: '$data.tags' } }, model: 'keyed2' },
    all: { resolve: {}, model: 'plain0' },
  };
  const { joins } = parseQuery(readJson(Buffer.from(JSON.stringify(find)), { maxDepth: 64 }));
  const options = { includeHistory: false, includeDeleted: true };
  const handle = ({ model }: Join) => ({ handle: model === 'plain0' ? plain! : keyed!, options });
  expect(describeJoins(planJoins(targetsOf(joins, handle)))).toEqual([
    { alias: 'byId', index: 'id' },
    { alias: 'byKeys', index: 'keyed2_a_b', joins: [{ alias: 'inner', scan: true }] },
    { alias: 'byLeading', index: 'keyed2_a_b' },
    { alias: 'byRange', index: 'keyed2_n.x_id' },
    { alias: 'scanned', scan: true },
    { alias: 'all', index: 'id' },
  ]);
});

/** Another text in the place of each that a caller chooses. */
function withCanaries(value: unknown): unknown {
  const known = [
    'resolve',
    'find',
    'select',
    'model',
    'many',
    'and',
    'or',
    'not',
    ...comparisons.map(([, name]) => name),
  ];
  if (typeof value === 'string') return value.replace(/^(\$data\.|\$parent\.)?.*$/s, `$1canary${random(3)}`);
  if (Array.isArray(value)) return value.map(withCanaries);
  if (typeof value !== 'object' || value === null) return value;
  return Object.fromEntries(
    Object.entries(value).map(([key, member], at) => [
      // Joins have names of their own, or references would name them.
      known.includes(key) || paths.includes(key) ? key : `canary_join${at}`,
      key === 'select' ? {} : withCanaries(member),
    ]),
  );
}

function targetsOf(
  joins: readonly Join[],
  source: (join: Join) => { handle: CollectionRef; options: DocumentsOptions },
  numbers = { last: 0 },
): JoinTarget[] {
  return joins.map((join) => {
    numbers.last += 1;
    const number = numbers.last;
    const { handle, options } = source(join);
    return {
      join,
      number,
      relation: documentsRelation(handle, options, number),
      joins: targetsOf(join.joins, source, numbers),
    };
  });
}

async function predefined(name: string, sourceCollection: string, query: object, parameters: Record<string, string>) {
  const request = { appId: app.appId, name, sourceCollection, baseQueryJson: Buffer.from(JSON.stringify(query)) };
  const more = {
    parametersJson: Buffer.alloc(0),
    exampleRequestJson: Buffer.alloc(0),
    exampleResponseJson: Buffer.alloc(0),
  };
  await fixture.methods.createQuery({
    ...request,
    ...more,
    description: '',
    version: '',
    readAccess: '',
    mayPublish: false,
    idempotency: noIdempotency,
  });
  const page = await app.read('runQuery', name, parameters);
  await fixture.methods.deleteQuery({ appId: app.appId, name, idempotency: noIdempotency });
  return page;
}
