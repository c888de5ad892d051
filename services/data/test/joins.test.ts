import { readJson } from '@granary/shared/json/value';
import { partsOf } from '@granary/testing/seeds';
import { size } from '@granary/testing/size';
import { findApp } from '../src/catalog/app';
import { findCollections } from '../src/catalog/collection';
import { parseQuery } from '../src/query/language/filter';
import type { Join } from '../src/query/language/joins';
import { describeJoins, planJoins } from '../src/query/plan/join-plan';
import { startFixture, type Fixture, type TestApp } from './support/query-fixture';
import { noIdempotency } from './support/data-service';
import { holds, withJoins, type Documents, type Meaning } from './support/query-reference';
import { joinGenerator, targetsOf } from './support/join-generator';
import { seededRandom } from './support/random';

const caseCount = size({ run: 200, long: 40_000 });

let fixture: Fixture;
beforeAll(async () => {
  fixture = await startFixture();
});
afterAll(() => fixture.stop());

/**
 * An app with each set of documents twice, `plain` without indexes and `keyed` with some, and its number behind the
 * name.
 */
async function makeApp(sets: ReadonlyArray<ReadonlyArray<Record<string, unknown>>>): Promise<TestApp> {
  const app = await fixture.newApp();
  for (const [which, documents] of sets.entries()) {
    // 1 is also written 1.0: the same number.
    const texts = documents.map((document) => JSON.stringify(document).replaceAll(':1,', ':1.0,'));
    for (const name of [`plain${which}`, `keyed${which}`]) {
      await app.createCollection(name);
      await app.store(name, texts);
      const schemaJson = JSON.stringify({ fields: { d: { type: 'date' } } });
      await fixture.methods.updateCollection({ appId: app.appId, name, schemaJson, force: true });
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
  return app;
}

const dateFields = new Set(['d']);
const inOrder = (documents: ReadonlyArray<Record<string, unknown>>) =>
  [...documents].sort((a, b) => ((a['id'] as string) < (b['id'] as string) ? -1 : 1));
/** By its name a model of these sets, with the documents that a read of it sees. */
const documentsIn = (sets: ReadonlyArray<ReadonlyArray<Record<string, unknown>>>) => {
  const collections = sets.map((documents) => ({ documents: inOrder(documents), dates: dateFields }));
  return (withDeleted: boolean) =>
    (model: string): Documents => {
      const found = collections[Number(model.at(-1))]!;
      return withDeleted ? found : { ...found, documents: found.documents.filter(({ deleted }) => deleted !== true) };
    };
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

test.each(partsOf('joins', caseCount))(
  '$cases joins give the records that their meanings hold for, with and without indexes, up to four deep (seed $seed)',
  async ({ seed, cases }) => {
    const random = seededRandom(seed);
    const { pick, makeDocuments, makeJoins, makeSelect } = joinGenerator(random);
    const sets = [makeDocuments(), makeDocuments(), makeDocuments()];
    const documentsOf = documentsIn(sets);
    const app = await makeApp(sets);
    let joined = 0;
    for (let round = 0; round < cases; round += 1) {
      const { sent, joins } = makeJoins();
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
        : await predefined(app, `q${round}`, root, query, { limit: `${limit}`, offset: `${offset}` });
      expect({ round, root, query, records: page.records }).toEqual({ round, root, query, records: expected });
      expect(page.total).toBe(matching.length);
      joined += joins.length;
    }
    expect(joined).toBeGreaterThan(cases / 2);
  },
);

test('a plan names the index of each join, or says that it scans', async () => {
  const app = await makeApp([[], [], []]);
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

async function predefined(
  app: TestApp,
  name: string,
  sourceCollection: string,
  query: object,
  parameters: Record<string, string>,
) {
  await fixture.methods.createQuery({
    appId: app.appId,
    name,
    sourceCollection,
    baseQueryJson: Buffer.from(JSON.stringify(query)),
    parametersJson: Buffer.alloc(0),
    exampleRequestJson: Buffer.alloc(0),
    exampleResponseJson: Buffer.alloc(0),
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
