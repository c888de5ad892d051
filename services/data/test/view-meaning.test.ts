import { newTicket } from '@granary/shared/ids';
import { limitMs } from '@granary/testing/speed';
import { startFixture, type Fixture, type TestApp } from './support/query-fixture';
import { seededRandom } from './support/random';
import { viewGenerator } from './support/view-generator';
import { viewRecords, type Source } from './support/view-reference';

const seed = Number(process.env['VIEWS_SEED'] ?? 16);
const viewCount = Number(process.env['VIEWS_COUNT'] ?? 250);
/** Views that are built at a time: the jobs of one app take turns. */
const batch = 25;
const random = seededRandom(seed);
const generator = viewGenerator(random);

let fixture: Fixture;
let app: TestApp;
const sources = new Map<string, Source>();

/** Writes documents, changes some of them and deletes others, and remembers what is visible. */
async function makeCollection(name: string, count: number): Promise<void> {
  await app.createCollection(name);
  const visible = new Map<string, { document: Record<string, unknown>; place: number }>();
  let place = 0;
  const write = async (ids: readonly string[], isDeleted: boolean): Promise<void> => {
    const documents = ids.map((id) => Object.assign(generator.makeDocument(id), isDeleted ? { deleted: true } : {}));
    await app.store(
      name,
      documents.map((document) => JSON.stringify(document).replaceAll(':1,', ':1.0,').replaceAll(':100,', ':1e2,')),
    );
    for (const document of documents) {
      visible.delete(document.id);
      if (!isDeleted) visible.set(document.id, { document, place: (place += 1) });
    }
  };
  const ids = Array.from({ length: count }, (_, at) => `k${at}`);
  await write(ids, false);
  await write(
    ids.filter(() => random(5) === 0),
    false,
  );
  await write(
    ids.filter(() => random(8) === 0),
    true,
  );
  // What is there already is not checked against the schema, so other text and numbers stand among the dates.
  const schemaJson = JSON.stringify({ fields: { d: { type: 'date' } } });
  await fixture.methods.updateCollection({ appId: app.appId, name, schemaJson });
  const documents = [...visible.values()].sort((a, b) =>
    Buffer.compare(Buffer.from(String(a.document['id'])), Buffer.from(String(b.document['id']))),
  );
  sources.set(name, { documents, dates: new Set(['d']) });
}

beforeAll(async () => {
  fixture = await startFixture();
  app = await fixture.newApp();
  await makeCollection('base', 120);
  await makeCollection('other', 40);
  await makeCollection('third', 20);
  await app.createIndex('base', 'g');
  await app.createIndex('other', 'ref');
}, limitMs(60_000));
afterAll(() => fixture.stop());

const query = JSON.stringify;

test(
  'every view has exactly the rows of its meaning, in its order',
  async () => {
    for (let made = 0; made < viewCount; made += batch) {
      const views = await Promise.all(
        Array.from({ length: batch }, async (_, at) => {
          const { view, query: asked, sourceCollections } = generator.makeView();
          const name = `v${made + at}`;
          const ticketId = newTicket('j', app.number);
          await fixture.methods.createView({
            appId: app.appId,
            appNumber: app.number.toString(),
            name,
            queryJson: Buffer.from(query(asked)),
            sourceCollections,
            refreshMode: '',
            variablesJson: Buffer.from(''),
            readAccess: '',
            ticketId,
          });
          return { name, view, asked, ticketId };
        }),
      );
      for (const { name, view, asked, ticketId } of views) {
        await app.completed(ticketId);
        const { records } = await app.read('readView', name, { limit: '10000' });
        const expected = viewRecords(view, sources);
        expect({ seed, name, asked, records }).toEqual({
          seed,
          name,
          asked,
          records: expected,
        });
        await fixture.methods.deleteView({ appId: app.appId, name, ticketId: '' });
      }
    }
  },
  limitMs(240_000),
);
