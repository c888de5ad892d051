import { limitMs } from '@granary/testing/speed';
import { readJson } from '@granary/shared/json/value';
import { findApp } from '../src/catalog/app';
import { findCollections } from '../src/catalog/collection';
import { parseQuery } from '../src/query/language/filter';
import type { Join } from '../src/query/language/joins';
import { describeJoins, planJoins } from '../src/query/plan/join-plan';
import { startFixture, type Fixture, type TestApp } from './support/query-fixture';
import { noIdempotency } from './support/data-service';
import { holds, withJoins, type Documents, type Meaning } from './support/query-reference';
import { caseCounts } from './support/case-counts';
import {
  makeJoins,
  makeSelect,
  newBudget,
  notes,
  people,
  pick,
  posts,
  random,
  targetsOf,
} from './support/join-generator';

const isLong = process.env['TEST_LONG'] === '1';
const caseCount = caseCounts.joins;
const longTimeoutMs = limitMs(isLong ? 7_200_000 : 600_000);

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

test(
  `${caseCount} joins give the records that their meanings hold for, with and without indexes, up to four deep`,
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
