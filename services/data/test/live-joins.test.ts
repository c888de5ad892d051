import { newTicket } from '@granary/shared/ids';
import { eventually } from '@granary/testing/eventually';
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

test('a change that makes 10,000 pairs is followed; by one of 10,001 the view is broken, computed, and built again', async () => {
  // A broken view is soon whole again.
  await fixture.pool.query(`
    create table broken_view (name text);
    create function keep_broken_view() returns trigger language plpgsql as
      $$ begin insert into public.broken_view values (new.name); return null; end $$;
    create trigger keep_broken_view after update on view for each row when (new.status = 'broken')
      execute function keep_broken_view()`);
  await create('sums', { ...byCountry, join: joined('inner') });
  const counts: unknown[] = [];
  for (const [customer, orders] of [
    ['ten', 10_000],
    ['more', 10_001],
  ] as const) {
    const ids = Array.from({ length: orders }, (_, at) => ({ id: `${customer}-${at}`, customer, total: 1 }));
    await store('orders', ...ids);
    await store('customers', { id: customer, country: customer, name: customer });
    const { rows } = await fixture.pool.query('select name from broken_view');
    counts.push([rows.length, (await records('sums')).find(({ m }) => m === customer)?.['n']]);
  }
  expect(counts).toEqual([
    [0, 10_000],
    [1, 10_001],
  ]);
  await eventually(async () => {
    const { status } = await fixture.methods.getView({ appId: app.appId, name: 'sums', ticketId: '' });
    return status === 'ready';
  });
  await store('orders', { id: 'more-0', customer: 'ten', total: 1 });
  expect((await records('sums')).map(({ n }) => n)).toEqual([10_000, 10_001]);
});
