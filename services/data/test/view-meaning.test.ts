import { newTicket } from '@granary/shared/ids';
import { partsOf } from '@granary/testing/seeds';
import { size } from '@granary/testing/size';
import { startFixture, type Fixture, type TestApp } from './support/query-fixture';
import { seededRandom, type Random } from './support/random';
import { viewGenerator, type ViewGenerator } from './support/view-generator';
import { viewRecords, type Source } from './support/view-reference';

const viewCount = size({ run: 48, long: 250 });
/** Views that are built at a time: the jobs of one app take turns. */
const batch = 25;

let fixture: Fixture;
beforeAll(async () => {
  fixture = await startFixture();
});
afterAll(() => fixture.stop());

interface Context {
  app: TestApp;
  random: Random;
  generator: ViewGenerator;
}

/** Writes documents, changes some of them and deletes others, and gives what is visible. */
async function makeCollection({ app, random, generator }: Context, name: string, count: number): Promise<Source> {
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
  // The change is forced, so other text and numbers stand among the dates.
  const schemaJson = JSON.stringify({ fields: { d: { type: 'date' } } });
  await fixture.methods.updateCollection({ appId: app.appId, name, schemaJson, force: true });
  const documents = [...visible.values()].sort((a, b) =>
    Buffer.compare(Buffer.from(String(a.document['id'])), Buffer.from(String(b.document['id']))),
  );
  return { documents, dates: new Set(['d']) };
}

async function makeSources(context: Context): Promise<Map<string, Source>> {
  const sources = new Map<string, Source>();
  for (const [name, count] of [
    ['base', 120],
    ['other', 40],
    ['third', 20],
  ] as const) {
    sources.set(name, await makeCollection(context, name, count));
  }
  await context.app.createIndex('base', 'g');
  await context.app.createIndex('other', 'ref');
  return sources;
}

test.each(partsOf('meanings of views', viewCount))(
  '$cases views have exactly the rows of their meanings, in their order (seed $seed)',
  async ({ seed, cases }) => {
    const app = await fixture.newApp();
    const random = seededRandom(seed);
    const generator = viewGenerator(random);
    const sources = await makeSources({ app, random, generator });
    for (let made = 0; made < cases; made += batch) {
      const views = await Promise.all(
        Array.from({ length: Math.min(batch, cases - made) }, async (_, at) => {
          const { view, query, sourceCollections } = generator.makeView();
          const name = `v${made + at}`;
          const ticketId = newTicket('j', app.number);
          await fixture.methods.createView({
            appId: app.appId,
            appNumber: app.number.toString(),
            name,
            queryJson: Buffer.from(JSON.stringify(query)),
            sourceCollections,
            refreshMode: '',
            variablesJson: Buffer.from(''),
            readAccess: '',
            ticketId,
          });
          return { name, view, query, ticketId };
        }),
      );
      for (const { name, view, query, ticketId } of views) {
        await app.completed(ticketId);
        const { records } = await app.read('readView', name, { limit: '10000' });
        expect({ name, query, records }).toEqual({ name, query, records: viewRecords(view, sources) });
        await fixture.methods.deleteView({ appId: app.appId, name, ticketId: '' });
      }
    }
  },
);
