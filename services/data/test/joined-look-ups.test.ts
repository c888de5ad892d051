import { partsOf } from '@granary/testing/seeds';
import { size } from '@granary/testing/size';
import { noIdempotency } from './support/data-service';
import { startFixture, type Fixture, type TestApp } from './support/query-fixture';
import { holds, Reference, withJoins, type JoinMeaning, type Meaning } from './support/query-reference';
import { seededRandom, type Random } from './support/random';

const caseCount = size({ run: 50, long: 20_000 });
const documentCount = 60;
const ids = Array.from({ length: documentCount }, (_, at) => (at % 7 === 0 ? `é "${at}"\\` : `k${at}`)).sort();
const groups = ['a', 'b', 1, true, null, 'x'.repeat(300)];
const models = ['small', 'some_large'];
const dates = new Set<string>();

let fixture: Fixture;
beforeAll(async () => {
  fixture = await startFixture();
});
afterAll(() => fixture.stop());

/** An app with collections of those names. */
async function makeApp(collections: Record<string, ReadonlyArray<Record<string, unknown>>>): Promise<TestApp> {
  const app = await fixture.newApp();
  for (const [name, documents] of Object.entries(collections)) {
    await app.createCollection(name);
    await app.store(
      name,
      documents.map((document) => JSON.stringify(document)),
    );
    await app.createIndex(name, 'group');
  }
  return app;
}

function lookUpGenerator(random: Random) {
  const pick = <T>(choices: readonly T[]): T => choices[random(choices.length)]!;
  /** What refers to an id, and what only resembles one. */
  const reference = (): unknown =>
    random(5) > 0 ? pick(ids) : pick<unknown>(['gone', '', 7, 1.5, true, null, [pick(ids)], { id: pick(ids) }]);

  function makeDocuments(isLarge: (at: number) => boolean): Array<Record<string, unknown>> {
    return ids.map((id, at) => {
      const document: Record<string, unknown> = { id, group: pick(groups) };
      if (random(8) > 0) document['to'] = reference();
      if (random(3) > 0) document['in'] = { '01': reference(), list: [reference(), reference()] };
      // A field of the name of a join gives way.
      if (random(6) === 0) document['one'] = { text: '"one"' };
      if (random(6) === 0) document['deleted'] = true;
      if (isLarge(at)) document['fill'] = 'x'.repeat(17_000);
      return document;
    });
  }

  /** Joins of one document by its id, as they are sent and what they mean. */
  function makeJoins(
    level: number,
    count: number,
    budget = { joins: 16 },
  ): { sent: Record<string, unknown>; joins: JoinMeaning[] } {
    const sent: Record<string, unknown> = {};
    const joins: JoinMeaning[] = [];
    for (let at = 0; at < count && budget.joins > 0; at += 1) {
      budget.joins -= 1;
      const alias = pick(['one', 'two', 'naïve "name"\\'].filter((name) => !(name in sent)));
      const to = pick(['to', 'to', 'id', 'in.01', 'in.list.1', 'gone']);
      const inner = makeJoins(level + 1, level === 4 ? 0 : random(3), budget);
      const fields = random(3) === 0 ? ['id', 'to'] : undefined;
      const model = pick(models);
      const find = { id: `$data.${to}`, ...inner.sent };
      sent[alias] = { resolve: { find, ...(fields && { select: fields }) }, model, many: false };
      joins.push({
        alias,
        model,
        many: false,
        joins: inner.joins,
        meaning: { path: ['id'], operator: 'is', operand: new Reference(to.split('.')) },
        select: fields && { keeps: 'named', fields },
      });
    }
    return { sent, joins };
  }

  return { pick, makeDocuments, makeJoins };
}

const explain = async (app: TestApp, collection: string, query: object): Promise<{ access: { method: string } }> => {
  const body = Buffer.from(JSON.stringify({ query }));
  const { json } = await fixture.methods.explainQuery({ appId: app.appId, collection, body });
  return JSON.parse(json.toString()) as { access: { method: string } };
};

test.each(partsOf('joined look-ups', caseCount))(
  '$cases pages by one index have the documents that their records refer to, at every entrance, page by page (seed $seed)',
  async ({ seed, cases }) => {
    const random = seededRandom(seed);
    const { pick, makeDocuments, makeJoins } = lookUpGenerator(random);
    const collections: Record<string, Array<Record<string, unknown>>> = {
      small: makeDocuments(() => false),
      some_large: makeDocuments((at) => at % 20 === 3),
    };
    const app = await makeApp(collections);
    const methods = new Set<string>();
    for (let round = 0; round < cases; round += 1) {
      const root = pick(models);
      const { sent, joins } = makeJoins(1, 1 + random(2));
      const [path, operand] = round % 6 === 0 ? ['id', pick(ids)] : ['group', pick(groups.slice(0, 4))];
      const meaning: Meaning = { path: [path], operator: 'is', operand };
      const query = { find: { [path]: operand, ...sent }, sort: pick([[], ['id'], ['-id']]) };
      const isList = random(4) > 0;
      const find = (model: string) => ({
        documents: collections[model]!.filter(({ deleted }) => isList || deleted !== true),
        dates,
      });
      const expected = find(root)
        .documents.filter((document) => holds(meaning, document, dates))
        .map((document) => withJoins(document, { select: undefined, joins }, find));
      if (query.sort[0] === '-id') expected.reverse();
      const limit = 1 + random(20);
      const records = isList ? await listed(app, root, query, limit) : await predefined(app, `q${round}`, root, query);
      expect({ round, root, query, records }).toEqual({ round, root, query, records: expected });
      if (round % 5 === 0) methods.add((await explain(app, root, { ...query, limit })).access.method);
    }
    expect([...methods].sort()).toEqual(['id', 'index']);
  },
);

test('a page that would look up more than 2,002 documents is not one by an index alone', async () => {
  const app = await makeApp({ small: [] });
  const join = { resolve: { find: { id: '$data.to' } }, model: 'small', many: false };
  const method = async (limit: number, find: object) =>
    (await explain(app, 'small', { find: { group: 'a', ...find }, limit })).access.method;
  expect(await method(1_000, { one: join })).toBe('index');
  expect(await method(1_000, { one: join, two: join })).toBe('sort');
  expect(await method(666, { one: join, two: join })).toBe('index');
  expect(await method(10, { one: { ...join, many: true } })).toBe('sort');
  expect(await method(10, { one: { ...join, resolve: { find: { id: '$data.to', group: 'a' } } } })).toBe('sort');
});

/** All records, page by page. */
async function listed(app: TestApp, root: string, query: object, limit: number): Promise<unknown[]> {
  const records: unknown[] = [];
  let cursor: unknown;
  do {
    const page = await app.list({
      root: `${app.appId}::${root}`,
      ...query,
      limit,
      count: 'none',
      ...(cursor === undefined ? {} : { cursor }),
    });
    records.push(...page.records);
    cursor = page['next_cursor'];
  } while (cursor !== undefined);
  return records;
}

async function predefined(app: TestApp, name: string, sourceCollection: string, query: object): Promise<unknown[]> {
  const none = Buffer.alloc(0);
  await fixture.methods.createQuery({
    appId: app.appId,
    name,
    sourceCollection,
    baseQueryJson: Buffer.from(JSON.stringify(query)),
    parametersJson: none,
    exampleRequestJson: none,
    exampleResponseJson: none,
    description: '',
    version: '',
    readAccess: '',
    mayPublish: false,
    idempotency: noIdempotency,
  });
  const { records } = await app.read('runQuery', name, {});
  await fixture.methods.deleteQuery({ appId: app.appId, name, idempotency: noIdempotency });
  return records;
}
