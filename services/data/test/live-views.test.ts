import { newTicket } from '@granary/shared/ids';
import { startFixture, type Fixture, type TestApp } from './support/query-fixture';

let fixture: Fixture;
let app: TestApp;
beforeAll(async () => {
  fixture = await startFixture();
});
afterAll(() => fixture.stop());
beforeEach(async () => {
  app = await fixture.newApp();
  await app.createCollection('docs');
});

async function create(name: string, query: object, refreshMode = 'live', variables: object = {}): Promise<void> {
  const { ticketId } = await fixture.methods.createView({
    appId: app.appId,
    appNumber: app.number.toString(),
    name,
    queryJson: Buffer.from(JSON.stringify(query)),
    sourceCollections: ['docs'],
    refreshMode,
    variablesJson: Buffer.from(JSON.stringify(variables)),
    readAccess: '',
    ticketId: newTicket('j', app.number),
  });
  await app.completed(ticketId);
}
const store = (...documents: object[]) => app.store('docs', documents.map((document) => JSON.stringify(document)));
const records = async (name: string, query: Record<string, string> = {}) => (await app.read('readView', name, query)).records;

test('a grouped view has each write when that is acknowledged', async () => {
  await store({ id: 'a', g: 'x', n: 1 }, { id: 'b', g: 'x', n: 2.5 });
  await create('sums', { group_by: ['g'], aggregate: { n: { $count: '*' }, s: { $sum: 'n' }, m: { $avg: 'n' } } });
  expect(await records('sums')).toEqual([{ g: 'x', n: 2, s: 3.5, m: 1.75 }]);
  await store({ id: 'c', g: 'y', n: 'text' });
  await store({ id: 'a', g: 'y', n: 4 });
  expect(await records('sums')).toEqual([
    { g: 'x', n: 1, s: 2.5, m: 2.5 },
    { g: 'y', n: 2, s: 4, m: 4 },
  ]);
  await store({ id: 'b', g: 'x', deleted: true });
  expect(await records('sums')).toEqual([{ g: 'y', n: 2, s: 4, m: 4 }]);
});
