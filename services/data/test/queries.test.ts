import { randomUUID } from 'node:crypto';
import { readFile, readdir, rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { eventually } from '@granary/testing/eventually';
import { removeAbandonedDocuments } from '../src/skills/kept-document';
import { noIdempotency } from './support/data-service';
import { startFixture, type Fixture, type TestApp } from './support/query-fixture';

let fixture: Fixture;
let app: TestApp;

beforeAll(async () => {
  fixture = await startFixture();
  app = await fixture.newApp();
  await app.createCollection('films', { fields: { year: { type: 'number' } } });
  await app.store('films', [
    '{"id":"1","title":"Heat","year":1995,"rating":8.3}',
    '{"id":"2","title":"Ronin","year":1998,"rating":7.2}',
    '{"id":"3","title":"Gone","year":1998,"rating":9,"deleted":true}',
    '{"id":"4","title":"Big","year":1988,"rating":7.3}',
  ]);
  await create('best', {
    base: { find: { rating: { gt: 7 } }, select: ['title'], sort: ['-rating'], limit: 2 },
    parameters: [
      { name: 'year', field_path: 'year' },
      { name: 'from', field_path: 'year.$gte', default: 1990 },
      { name: 'title', field_path: 'title.$in', required: true, description: 'one or more' },
    ],
  });
});
afterAll(() => fixture.stop());

interface Definition {
  base?: unknown;
  parameters?: unknown;
  source?: string;
  readAccess?: string;
  version?: string;
  of?: TestApp;
}

const create = (
  name: string,
  { base = {}, parameters = [], source = 'films', readAccess = '', version = '1', of = app }: Definition,
) =>
  fixture.methods.createQuery({
    appId: of.appId,
    name,
    sourceCollection: source,
    baseQueryJson: Buffer.from(JSON.stringify(base)),
    parametersJson: Buffer.from(JSON.stringify(parameters)),
    description: 'The best films',
    version,
    exampleRequestJson: Buffer.from('{"a":1}'),
    exampleResponseJson: Buffer.alloc(0),
    readAccess,
  });

const run = (name: string, query: Record<string, string>) => app.read('runQuery', name, query);
const titles = async (query: Record<string, string>) => (await run('best', query)).records.map(({ title }) => title);

test('a predefined query runs with its parameters, typed, and with their defaults', async () => {
  expect(await run('best', { title: 'Heat,Ronin,Big,Gone' })).toEqual({
    records: [{ title: 'Heat' }, { title: 'Ronin' }],
    total: 2,
    page: 1,
    limit: 2,
  });
  expect(await titles({ title: 'Heat,Ronin', year: '1998.0' })).toEqual(['Ronin']);
  expect(await titles({ title: 'Heat,Ronin,Big', from: '0', offset: '2' })).toEqual(['Ronin']);
});

test.each([
  [{}, 'VALIDATION_FAILED'],
  [{ title: 'Heat', rating: '1' }, 'VALIDATION_FAILED'],
  [{ title: 'Heat', toString: '1' }, 'VALIDATION_FAILED'],
  [{ title: 'Heat', year: 'late' }, 'INVALID_QUERY'],
  [{ title: 'Heat', limit: '3' }, 'LIMIT_EXCEEDED'],
  [{ title: 'Heat', cursor: 'x' }, 'INVALID_CURSOR'],
] as unknown as Array<[Record<string, string>, string]>)(
  'an execution with %j is refused: %s',
  async (query, reason) => {
    await expect(titles(query)).rejects.toMatchObject({ reason });
  },
);

test.each([
  ['best', {}, 'ALREADY_EXISTS'],
  ['a b', {}, 'VALIDATION_FAILED'],
  ['x', { source: 'none' }, 'COLLECTION_NOT_FOUND'],
  ['x', { base: { where: {} } }, 'INVALID_QUERY'],
  ['x', { base: { find: { a: { $near: 1 } } } }, 'INVALID_QUERY'],
  ['x', { base: { limit: 100_000 } }, 'LIMIT_EXCEEDED'],
  ['x', { parameters: {} }, 'INVALID_QUERY'],
  ['x', { version: 'v'.repeat(101) }, 'LIMIT_EXCEEDED'],
  ['x', { parameters: [{ name: 'limit', field_path: 'a' }] }, 'INVALID_QUERY'],
  ['x', { parameters: [{ name: 'version', field_path: 'a' }] }, 'INVALID_QUERY'],
  ['x', { parameters: [{ name: 'p', field_path: 'limit', default: 'many' }] }, 'INVALID_QUERY'],
  ['x', { parameters: [{ name: 'p', field_path: 'limit', default: 1.5 }] }, 'INVALID_QUERY'],
  ['x', { parameters: [{ name: 'p', field_path: 'limit', default: 0 }] }, 'INVALID_QUERY'],
  ['x', { base: { limit: 5 }, parameters: [{ name: 'p', field_path: 'limit', default: 6 }] }, 'LIMIT_EXCEEDED'],
  ['x', { parameters: [{ name: 'p', field_path: 'limit', default: 10_001 }] }, 'LIMIT_EXCEEDED'],
  [
    'x',
    {
      parameters: [
        { name: 'a', field_path: 'limit' },
        { name: 'b', field_path: 'limit' },
      ],
    },
    'INVALID_QUERY',
  ],
  ['x', { parameters: [{ name: 'a' }] }, 'INVALID_QUERY'],
  ['x', { parameters: [{ name: 'a', field_path: 'a.$gte', default: [1] }] }, 'INVALID_QUERY'],
  [
    'x',
    {
      parameters: [
        { name: 'a', field_path: 'a' },
        { name: 'a', field_path: 'b' },
      ],
    },
    'INVALID_QUERY',
  ],
] as Array<[string, Definition, string]>)(
  'the query %s %j is refused when it is made: %s',
  async (name, definition, reason) => {
    await expect(create(name, definition)).rejects.toMatchObject({ reason });
  },
);

test('queries are listed, described and deleted', async () => {
  await create('short', {});
  const query = await fixture.methods.getQuery({ appId: app.appId, name: 'short' });
  expect(query).toMatchObject({
    name: 'short',
    sourceCollection: 'films',
    description: 'The best films',
    version: '1',
  });
  expect([query.baseQueryJson, query.exampleRequestJson, query.exampleResponseJson].map(String)).toEqual([
    '{}',
    '{"a":1}',
    '',
  ]);
  const names = async () => (await fixture.methods.listQueries({ appId: app.appId })).queries.map(({ name }) => name);
  expect(await names()).toEqual(['best', 'short']);
  expect((await run('short', {})).total).toBe(3);
  await fixture.methods.deleteQuery({ appId: app.appId, name: 'short' });
  expect(await names()).toEqual(['best']);
  // It was executed a moment ago, and yet is gone at once; another one of the name is there at once.
  await expect(run('short', {})).rejects.toMatchObject({ reason: 'QUERY_NOT_FOUND' });
  await create('short', { base: { find: { year: 1998 } } });
  expect((await run('short', {})).total).toBe(1);
  await fixture.methods.deleteQuery({ appId: app.appId, name: 'short' });
});

test('a query that is private, or over a private collection, needs a key', async () => {
  await app.createCollection('hidden', undefined, 'private');
  await create('closed', { readAccess: 'private' });
  await create('over', { source: 'hidden' });
  for (const name of ['closed', 'over']) await expect(run(name, {})).rejects.toMatchObject({ code: 'UNAUTHENTICATED' });
  const request = { appId: app.appId, name: 'over', parameters: [], mayReadPrivate: true };
  expect((await fixture.methods.runQuery(request)).json.toString()).toContain('"records":[]');
});

describe('the skills document', () => {
  const skills = async (of: TestApp): Promise<string> =>
    (await fixture.methods.getSkills({ appId: of.appId, mayReadPrivate: false })).markdown;

  test('follows every change of collections, indexes, views and queries, on disk too', async () => {
    const own = await fixture.newApp();
    const file = join(fixture.skillsDirectory, `${own.number}.md`);
    const documents = [await skills(own)];
    const changes = [
      () => own.createCollection('birds'),
      () => own.createIndex('birds', "wing'span", 'number'),
      () =>
        create('largest', {
          source: 'birds',
          parameters: [{ name: 'kind', field_path: 'kind', required: true }],
          of: own,
        }),
      () => fixture.methods.deleteQuery({ appId: own.appId, name: 'largest' }),
    ];
    for (const change of changes) {
      await change();
      documents.push(await skills(own));
      expect(await readFile(file, 'utf8')).toBe(documents.at(-1));
      expect(documents.at(-1)).not.toBe(documents.at(-2));
    }
    expect(documents[1]).toContain(
      `curl -s 'http://granary.test/api/apps/${own.appId}/collections/birds/data?limit=10'`,
    );
    expect(documents[2]).toContain("- `wing'span` (number)");
    expect(documents[2]).toContain('/birds/data?wing%27span.$exists=true');
    expect(documents[3]).toContain(`/api/queries/${own.appId}/largest/data?kind=VALUE'`);
    expect(documents[4]).not.toContain('largest');
  });

  test('keeps the part of the owner before the generated one, also when the whole was put back', async () => {
    const own = await fixture.newApp();
    const put = async (markdown: string) => {
      await fixture.methods.putSkills({ appId: own.appId, markdown });
      return skills(own);
    };
    const first = await put('# Ours\n');
    const again = await put(first.replace('# Ours', '# Still ours <!-- granary:generated:end -->'));
    await own.createCollection('later');
    const text = await skills(own);
    expect(again).toContain('\n# Still ours <!-- granary generated end -->\n\n<!-- granary:generated:begin -->\n');
    expect(text).toMatch(/# Still ours [\s\S]*generated:begin[\s\S]*### later[\s\S]*generated:end -->\n$/);
    expect(text.match(/granary:generated:|# Still ours/g)).toHaveLength(3);
  });

  test('is refused over 256 KiB and of an app that is not there, and leaves no half files', async () => {
    const own = await fixture.newApp();
    const put = (markdown: string) => fixture.methods.putSkills({ appId: own.appId, markdown });
    await expect(put('é'.repeat(128 * 1024 + 1))).rejects.toMatchObject({ reason: 'SKILLS_TOO_LARGE' });
    await put('é'.repeat(128 * 1024));
    await expect(fixture.methods.getSkills({ appId: '../etc', mayReadPrivate: false })).rejects.toMatchObject({
      reason: 'APP_NOT_FOUND',
    });
    expect((await readdir(fixture.skillsDirectory)).filter((name) => !/^\d+(\.all)?\.md$/.test(name))).toEqual([]);
  });

  test('and the OpenAPI document of an app leave no file behind when it is deleted, or at the next start', async () => {
    const { methods, skillsDirectory } = fixture;
    const [own, other] = [await fixture.newApp(), await fixture.newApp()];
    const files = async ({ number }: TestApp) =>
      (await readdir(skillsDirectory)).filter((file) => file.startsWith(`${number}.`)).sort();
    for (const { appId } of [own, other]) {
      for (const mayReadPrivate of [true, false]) {
        await methods.getSkills({ appId, mayReadPrivate });
        await methods.getOpenapi({ appId, mayReadPrivate });
      }
    }
    const kinds = ['all.md', 'all.openapi.json', 'md', 'public.openapi.json'];
    expect(await files(own)).toEqual(kinds.map((kind) => `${own.number}.${kind}`));
    await methods.deleteApplication({ appId: own.appId, idempotency: noIdempotency });
    await eventually(async () => (await files(own)).length === 0);
    expect(await files(other)).toEqual(kinds.map((kind) => `${other.number}.${kind}`));
    // As a copy of the service finds them that did not run then.
    await writeFile(join(skillsDirectory, `${own.number}.md`), 'late');
    await writeFile(join(skillsDirectory, `${own.number}.all.openapi.json.${randomUUID()}`), 'half');
    await writeFile(join(skillsDirectory, 'note.md'), 'not generated');
    await removeAbandonedDocuments({ pool: fixture.pool, skillsDirectory });
    expect(await files(own)).toEqual([]);
    expect(await files(other)).toHaveLength(4);
    await rm(join(skillsDirectory, 'note.md'));
  });
});
