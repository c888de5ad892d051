import { eventually } from '@granary/testing/eventually';
import { borrowGranary, newApp, send, transports, type Granary, type TestApp } from '../support/granary';

describe.each(transports)('joins in live views (%s)', (transport) => {
  let granary: Granary;
  let app: TestApp;
  beforeAll(async () => {
    granary = await borrowGranary(transport);
  });
  afterAll(() => granary.stop());
  beforeEach(async () => {
    app = await newApp(granary);
    await app.store('orders', [
      { id: 'o1', customer: 'ann', total: 1 },
      { id: 'o2', customer: 'bob', total: 2.5, customers: 'own' },
      { id: 'o3', total: 4 },
    ]);
    await app.store('customers', [{ id: 'ann', country: 'at' }]);
  });

  const customers = (type: string) => ({ customers: { on: { id: '$data.customer' }, type } });
  const post = (name: string, query: object, from = ['orders', 'customers']) =>
    app.call<{ ticket_id: string; code: string; details: Record<string, string[]> }>(
      'POST',
      `/apps/${app.appId}/views`,
      { name, query, source_collections: from, refresh_mode: 'live' },
    );
  const create = async (name: string, query: object) => {
    const made = await post(name, query);
    expect(made.status).toBe(202);
    expect((await app.ended(made.body.ticket_id)).status).toBe('Completed');
  };
  const rows = async (name: string): Promise<unknown[]> =>
    (await send<{ records: unknown[] }>(granary.url, 'GET', `/api/views/${app.appId}/${name}/data`)).body.records;
  const status = async (name: string): Promise<string> =>
    (await app.call<{ status: string }>('GET', `/apps/${app.appId}/views/${name}`)).body.status;

  test('rows and groups follow writes to either collection, in the text of both', async () => {
    await create('rows', { join: customers('left') });
    await create('totals', {
      join: customers('inner'),
      group_by: 'customers.country',
      aggregate: { n: { $count: '*' }, total: { $sum: 'total' } },
    });
    await app.store('customers', [{ id: 'bob', country: 'be' }]);
    await app.store('orders', [{ id: 'o1', customer: 'bob', total: 7 }]);
    expect(await rows('rows')).toEqual([
      { id: 'o1', customer: 'bob', total: 7, customers: { id: 'bob', country: 'be' } },
      { id: 'o2', customer: 'bob', total: 2.5, customers: { id: 'bob', country: 'be' } },
      { id: 'o3', total: 4, customers: null },
    ]);
    expect(await rows('totals')).toEqual([{ customers: { country: 'be' }, n: 2, total: 9.5 }]);
  });

  test('both sides of one atomic batch are in the view once', async () => {
    await create('rows', { join: customers('inner'), select: ['id', 'customers.country'] });
    const operations = [
      { operation: 'create', collection: 'orders', data: { id: 'o4', customer: 'cyd' } },
      { operation: 'create', collection: 'customers', data: { id: 'cyd', country: 'cy' } },
      { operation: 'update', collection: 'orders', data: { id: 'o3', customer: 'ann' } },
      { operation: 'update', collection: 'customers', data: { id: 'ann', country: 'ad' } },
    ];
    const made = await app.call('POST', `/api/apps/${app.appId}/batch`, { operations, atomic: true });
    expect(made.status).toBe(200);
    expect(await rows('rows')).toEqual([
      { id: 'o1', customers: { country: 'ad' } },
      { id: 'o3', customers: { country: 'ad' } },
      { id: 'o4', customers: { country: 'cy' } },
    ]);
  });

  test('a write that changes more than 10,000 rows stands, and the view is computed until it is whole again', async () => {
    const all = 10_001;
    for (let at = 0; at < all; at += 1_000) {
      const length = Math.min(1_000, all - at);
      await app.store(
        'orders',
        Array.from({ length }, (_, i) => ({ id: `n${at + i}`, customer: 'dan', total: 1 })),
      );
    }
    const query = { group_by: 'customers.country', aggregate: { n: { $count: '*' } } };
    await create('counts', { ...query, join: customers('inner') });
    await create('other', { ...query, join: customers('left'), find: { customer: 'ann' } });
    await app.store('customers', [{ id: 'dan', country: 'dk' }]);
    const expected = [
      { customers: { country: 'at' }, n: 1 },
      { customers: { country: 'dk' }, n: all },
    ];
    expect(await rows('counts')).toEqual(expected);
    await eventually(async () => (await status('counts')) === 'ready');
    expect(await rows('counts')).toEqual(expected);
    // What one write may do follows at once again.
    await app.store('orders', [{ id: 'n0', customer: 'ann' }]);
    expect(await rows('counts')).toEqual([
      { customers: { country: 'at' }, n: 2 },
      { customers: { country: 'dk' }, n: all - 1 },
    ]);
  });

  const on = { id: '$data.customer' };
  test.each<[string, object, string[], string]>([
    [
      'a second join',
      { join: { ...customers('left'), more: { collection: 'customers', on: { id: '$data.customers.id' } } } },
      ['orders', 'customers'],
      'query.join.more',
    ],
    ['a join with itself', { join: { o: { collection: 'orders', on } } }, ['orders'], 'query.join.o.collection'],
    [
      'a first value',
      { join: customers('left'), group_by: 'total', aggregate: { f: { $first: 'customers.country' } } },
      ['orders', 'customers'],
      'query.aggregate.f',
    ],
    [
      'a last value',
      { join: customers('left'), aggregate: { l: { $last: 'total' } } },
      ['orders', 'customers'],
      'query.aggregate.l',
    ],
  ])('%s is refused with its place and the advice to make the view lazy', async (_, query, from, place) => {
    const { status: answered, body } = await post('refused', query, from);
    expect([answered, body.code, Object.keys(body.details)]).toEqual([400, 'INVALID_QUERY', [place]]);
    expect(body.details[place]![0]).toContain('make it lazy');
  });
});
