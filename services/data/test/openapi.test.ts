import { readdir } from 'node:fs/promises';
import { startFixture, type Fixture, type TestApp } from './support/query-fixture';

const documentBytesMax = 4 * 1024 * 1024;

interface Document {
  info: { version: string; description: string };
  paths: Record<string, { get: { operationId: string } }>;
  components: { schemas: Record<string, unknown> };
}

let fixture: Fixture;
beforeAll(async () => {
  fixture = await startFixture();
});
afterAll(() => fixture.stop());

const read = async (app: TestApp, mayReadPrivate = false) => {
  const { json } = await fixture.methods.getOpenapi({ appId: app.appId, mayReadPrivate });
  return { bytes: json.length, document: JSON.parse(json.toString()) as Document };
};

/** Collections as rows of the catalog, which is all that the document is made of. */
const addCollections = (app: TestApp, count: number, schema: object) =>
  fixture.pool.query({
    text: `insert into collection (app_number, name, schema_text, read_access, created_at, updated_at)
           select $1, 'c' || n, $2, 'public', now(), now() from generate_series(1, $3) n`,
    values: [app.number, JSON.stringify(schema), count],
  });

const fields = (count: number, description: string) => ({
  fields: Object.fromEntries(
    Array.from({ length: count }, (_, at) => [`field_${at}`, { type: 'string', description }] as const),
  ),
});

test('a thousand collections of ten fields are described, each with its own schema', async () => {
  const app = await fixture.newApp();
  await addCollections(app, 1_000, fields(10, 'Text'));
  const { bytes, document } = await read(app);
  expect(bytes).toBeLessThan(documentBytesMax);
  expect(Object.keys(document.paths)).toHaveLength(1_000);
  expect(new Set(Object.values(document.paths).map(({ get }) => get.operationId)).size).toBe(1_000);
  expect(document.info.description).not.toContain('Left out');
});

test('what is too large for the document is counted, views and queries have their part, and no reference is broken', async () => {
  const app = await fixture.newApp();
  await addCollections(app, 1_000, fields(40, 'Some words about it. '.repeat(5)));
  for (const source of ['c1', 'c999']) {
    await fixture.methods.createQuery({
      appId: app.appId,
      name: `of_${source}`,
      sourceCollection: source,
      baseQueryJson: Buffer.from('{}'),
      parametersJson: Buffer.alloc(0),
      description: '',
      version: '',
      exampleRequestJson: Buffer.alloc(0),
      exampleResponseJson: Buffer.alloc(0),
      readAccess: '',
    });
  }
  const { bytes, document } = await read(app);
  expect(bytes).toBeLessThanOrEqual(documentBytesMax);
  const paths = Object.keys(document.paths);
  const described = paths.filter((path) => path.includes('/collections/')).length;
  expect(described).toBeGreaterThan(50);
  expect(document.info.description).toContain(`Left out, because they are too many: ${1_000 - described} collections.`);
  expect(paths.filter((path) => path.includes('/queries/'))).toHaveLength(2);
  const references = [...JSON.stringify(document).matchAll(/"#\/components\/schemas\/([^"]+)"/g)];
  for (const [, name] of references) expect(document.components.schemas).toHaveProperty([name!]);
});

test('requests at the same time, and later ones of the same catalog, are answered from one file for each kind of reader', async () => {
  const app = await fixture.newApp();
  await app.createCollection('open');
  await app.createCollection('closed', undefined, 'private');
  const versions = await Promise.all(Array.from({ length: 10 }, async () => (await read(app)).document.info.version));
  expect(new Set(versions).size).toBe(1);
  expect(Object.keys((await read(app, true)).document.paths)).toHaveLength(2);
  expect(Object.keys((await read(app)).document.paths)).toHaveLength(1);
  const files = (await readdir(fixture.skillsDirectory)).filter((file) => file.startsWith(`${app.number}.`));
  expect(files.sort()).toEqual([`${app.number}.all.openapi.json`, `${app.number}.public.openapi.json`]);
});
