import { newTicket } from '@granary/shared/ids';
import { noIdempotency } from './support/data-service';
import { startFixture, type Fixture, type TestApp } from './support/query-fixture';

let fixture: Fixture;
let app: TestApp;
beforeAll(async () => {
  fixture = await startFixture();
});
afterAll(() => fixture.stop());
beforeEach(async () => {
  app = await fixture.newApp();
  await app.createCollection('orders');
  await app.createCollection('customers');
});

type Query = { join: object } & Record<string, unknown>;

async function create(name: string, query: Query, refreshMode = 'live'): Promise<void> {
  const { ticketId } = await fixture.methods.createView({
    appId: app.appId,
    appNumber: app.number.toString(),
    name,
    queryJson: Buffer.from(JSON.stringify(query)),
    sourceCollections: ['orders', 'customers'],
    refreshMode,
    variablesJson: Buffer.from(''),
    readAccess: '',
    ticketId: newTicket('j', app.number),
  });
  await app.completed(ticketId);
}

const store = (collection: 'orders' | 'customers', ...documents: object[]) =>
  app.store(
    collection,
    documents.map((document) => JSON.stringify(document)),
  );
const records = async (name: string) => (await app.read('readView', name, {})).records;
const joined = (type: 'left' | 'inner') => ({
  c: { collection: 'customers', on: { id: '$data.customer' }, type },
});
const byCountry = {
  group_by: ['c.country'],
  aggregate: { n: { $count: '*' }, s: { $sum: 'total' }, m: { $max: 'c.name' } },
};

test('groups of an inner join follow the writes to either collection', async () => {
  await store('orders', { id: 'o1', customer: 'ann', total: 1 }, { id: 'o2', customer: 'bob', total: 2 });
  await create('sums', { ...byCountry, join: joined('inner') });
  expect(await records('sums')).toEqual([]);
  await store('customers', { id: 'ann', country: 'at', name: 'Ann' }, { id: 'bob', country: 'at', name: 'Bob' });
  expect(await records('sums')).toEqual([{ c: { country: 'at' }, n: 2, s: 3, m: 'Bob' }]);
  await store('customers', { id: 'bob', country: 'be', name: 'Bob' });
  await store(
    'orders',
    { id: 'o3', customer: 'bob', total: 0.5 },
    { id: 'o4', total: 9 },
    { id: 'o5', customer: null },
  );
  expect(await records('sums')).toEqual([
    { c: { country: 'at' }, n: 1, s: 1, m: 'Ann' },
    { c: { country: 'be' }, n: 2, s: 2.5, m: 'Bob' },
  ]);
  await store('orders', { id: 'o2', customer: 'ann', total: 5 });
  await store('customers', { id: 'bob', deleted: true });
  expect(await records('sums')).toEqual([{ c: { country: 'at' }, n: 2, s: 6, m: 'Ann' }]);
});

test('a left join has null for a document as long as it has no partner', async () => {
  await store('orders', { id: 'o1', customer: 'ann', total: 1 }, { id: 'o2', total: 2 });
  await create('rows', { join: joined('left') });
  const alone = { id: 'o2', total: 2, c: null };
  expect(await records('rows')).toEqual([{ id: 'o1', customer: 'ann', total: 1, c: null }, alone]);
  await store('customers', { id: 'ann', name: 'Ann' });
  expect(await records('rows')).toEqual([
    { id: 'o1', customer: 'ann', total: 1, c: { id: 'ann', name: 'Ann' } },
    alone,
  ]);
  await store('customers', { id: 'ann', deleted: true });
  expect(await records('rows')).toEqual([{ id: 'o1', customer: 'ann', total: 1, c: null }, alone]);
  const erased = { collection: 'orders', id: 'o1', ifMatch: null, idempotency: noIdempotency };
  await fixture.methods.eraseDocument({ appId: app.appId, appNumber: app.number.toString(), ...erased });
  expect(await records('rows')).toEqual([alone]);
});
