import { borrowGranary, newApp, operatorKey, send, transports, type Granary, type TestApp } from '../support/granary';
import { startGranary } from '../support/own-granary';

const prices = {
  WRITE_UTIA_PER_KB: '33',
  READ_UTIA_PER_KB: '7',
  INDEX_UTIA_PER_KB: '9',
  BROKER_FEE_PERCENT: '0:20,1000000:12.5',
};

interface Quote extends Record<string, unknown> {
  total_cost_utia: number;
  indexed_fields_count: number;
}

describe.each(transports)('quotes of prices (%s)', (transport) => {
  let granary: Granary;
  let app: TestApp;
  beforeAll(async () => {
    granary = await startGranary(transport, { settings: { payments: prices } });
  });
  afterAll(() => granary.stop());
  beforeEach(async () => {
    app = await newApp(granary);
  });

  const quote = (body: object, headers: Record<string, string> = {}) =>
    send<Quote>(granary.url, 'POST', '/api/pricing/quote', {
      body: { app_id: app.appId, operation_type: 'write', collection: 'films', size_kb: 2.5, ...body },
      headers,
    });
  const index = async (field_name: string, more: object = {}) => {
    const definition = { name: `by_${field_name}`, collection: 'films', field_name, index_type: 'string', ...more };
    expect((await app.call('POST', `/api/apps/${app.appId}/indexes`, definition)).status).toBe(201);
  };

  test('a write costs its size, a fee of that and each indexed field, each rounded up to whole utia', async () => {
    await index('title');
    await index('year', { index_type: 'composite', fields: ['year', 'title'] });
    await index('plot', { index_type: 'fulltext' });
    const answer = await quote({ monthly_volume_kb: 12.5 });
    expect(answer.status).toBe(200);
    // 2.5 × 33 = 82.5, 20 % of 83 = 16.6, 2.5 × 9 = 22.5
    expect(answer.body).toEqual({
      type: 'write_quote_with_indexing',
      base_celestia_cost: 0.000083,
      base_celestia_cost_utia: 83,
      broker_fee: 0.000017,
      broker_fee_utia: 17,
      indexing_costs: { title: 0.000023, year: 0.000023, plot: 0.000023 },
      indexing_costs_utia: { title: 23, year: 23, plot: 23 },
      base_total_cost: 0.000169,
      base_total_cost_utia: 169,
      total_cost: 0.000169,
      total_cost_utia: 169,
      indexed_fields_count: 3,
      request: {
        app_id: app.appId,
        operation_type: 'write',
        collection: 'films',
        size_kb: 2.5,
        monthly_volume_kb: 12.5,
      },
      monthly_volume_kb: 12.5,
      currency: 'TIA',
    });
    const cheaper = (await quote({ monthly_volume_kb: 1_000_000 })).body;
    expect([cheaper['broker_fee_utia'], cheaper['monthly_volume_kb']]).toEqual([11, 1_000_000]);
  });

  test('a read costs its size and the highest price that an index asks, divided between application and platform', async () => {
    const perAccess = { pricing_model: 'per_access', price_per_access_tia: 0.000101 };
    await index('title', { read_price_config: { ...perAccess, app_owner_percentage: 0.7 } });
    await index('plot', { read_price_config: { pricing_model: 'per_kb', price_per_kb_utia: 10 } });
    const small = (await quote({ operation_type: 'read' })).body;
    expect(small).toMatchObject({
      type: 'read_quote',
      base_celestia_cost_utia: 18,
      broker_fee_utia: 4,
      indexing_costs: {},
      base_total_cost_utia: 22,
      total_cost_utia: 123,
      total_cost: 0.000123,
      indexed_fields_count: 2,
      creator_premium: {
        premium_total: 0.000101,
        premium_total_utia: 101,
        premium_type: 'per_access',
        premium_amount: 0.000101,
        creator_revenue_utia: 70,
        platform_revenue_utia: 31,
        revenue_split: '70/30',
      },
      price: {
        index: 'by_title',
        field_name: 'title',
        pricing_model: 'per_access',
        amount: 0.000101,
        amount_utia: 101,
      },
    });
    const large = (await quote({ operation_type: 'read', size_kb: 100.01 })).body;
    expect(large['creator_premium']).toMatchObject({
      premium_total_utia: 1_001,
      premium_type: 'per_kb',
      premium_amount: 0.00001,
      creator_revenue_utia: 800,
      platform_revenue_utia: 201,
      revenue_split: '80/20',
    });
    expect((await quote({})).body).not.toHaveProperty('creator_premium');
  });

  test('documents of a quote for a write cost the values that they have in a field with a price index', async () => {
    await index('order.total', { index_type: 'price', price_config: { app_owner_percentage: 0.75 } });
    const write = (data: unknown) => quote({ data });
    const answer = (await write([{ order: { total: 1_000 } }, { order: { total: 1.5e1 } }, { order: null }, {}])).body;
    expect(answer['creator_premium']).toMatchObject({ premium_total_utia: 1_015, creator_revenue_utia: 761 });
    expect(answer['price']).toMatchObject({ pricing_model: 'field_value', field_name: 'order.total' });
    expect(answer['total_cost_utia']).toBe(Number(answer['base_total_cost_utia']) + 1_015);
    expect((await quote({})).body).not.toHaveProperty('creator_premium');
    for (const total of [1.5, -1, '1', true, 2 ** 53, [1], { a: 1 }]) {
      const refused = await write({ order: { total } });
      expect([refused.status, refused.body['code']]).toEqual([400, 'VALIDATION_FAILED']);
      expect(refused.body['details']).toHaveProperty(['data.order.total']);
    }
    const many = await write([{ order: { total: 2 ** 53 - 1 } }, { order: { total: 1 } }]);
    expect([many.status, many.body['code']]).toEqual([400, 'LIMIT_EXCEEDED']);
  });

  test('amounts are exact to the utia, and what exceeds 2^53-1 utia is refused', async () => {
    await index('price', { index_type: 'price' });
    const exact = await quote({ size_kb: 0, data: { price: 9_007_199_254_740_991 } });
    expect(exact.text).toContain('"total_cost":9007199254.740991,"total_cost_utia":9007199254740991');
    expect(exact.text).toContain('"creator_revenue":7205759403.792792,"creator_revenue_utia":7205759403792792');
    for (const size of [0.000001, 0.0009765625, 1e-6 + 1e-9]) {
      expect((await quote({ size_kb: size })).text).toContain('"base_celestia_cost":0.000001,');
    }
    expect((await quote({ size_kb: 1e-9 })).text).toContain('"base_celestia_cost":0,');
    const beyond = await quote({ size_kb: 0.000001, data: { price: 9_007_199_254_740_991 } });
    expect([beyond.status, beyond.body['code']]).toEqual([400, 'LIMIT_EXCEEDED']);
  });

  test('a private collection has the quote of one that does not exist, but for callers who may read it', async () => {
    await index('title', { read_price_config: { pricing_model: 'per_access', price_per_access_utia: 5 } });
    const path = `/api/apps/${app.appId}/collections/films`;
    expect((await app.call('PUT', path, { access_policy: { read: 'private' } })).status).toBe(200);
    const key = async (...permissions: string[]) => {
      const body = { name: permissions.join(), permissions };
      const made = await app.call<{ app_key: string }>('POST', `/api/apps/${app.appId}/regenerate-key`, body);
      return { 'x-app-key': made.body.app_key };
    };
    const strangers = [{}, { 'x-app-key': (await newApp(granary)).key }, await key('Write')];
    const insiders = [await key('Read'), { 'x-app-key': app.key }, { 'x-operator-key': operatorKey }];
    for (const operation_type of ['read', 'write']) {
      const seen = async (collection: string, headers: Record<string, string>) => {
        const answer = await quote({ collection, operation_type }, headers);
        expect(answer.status).toBe(200);
        return answer.text.replace(`"collection":"${collection}"`, '');
      };
      const nothing = await seen('nothing', {});
      for (const headers of strangers) expect(await seen('films', headers)).toBe(nothing);
      for (const headers of insiders) expect(await seen('films', headers)).not.toBe(nothing);
      expect(nothing).toContain('"indexed_fields_count":0');
    }
    // A price index of a private collection does not judge the documents of strangers.
    await index('amount', { index_type: 'price' });
    expect((await quote({ data: { amount: 'none' } })).status).toBe(200);
    expect((await quote({ data: { amount: 'none' } }, { 'x-app-key': app.key })).status).toBe(400);
  });

  test('bad input is refused, with the place', async () => {
    const refused: Array<[object, string]> = [
      [{ size_kb: -1 }, 'size_kb'],
      [{ size_kb: '1' }, 'size_kb'],
      [{ size_kb: 2 ** 30 + 1 }, 'size_kb'],
      [{ size_kb: null }, 'size_kb'],
      [{ monthly_volume_kb: -1 }, 'monthly_volume_kb'],
      [{ monthly_volume_kb: 1e300 }, 'monthly_volume_kb'],
      [{ operation_type: 'update' }, 'operation_type'],
      [{ collection: '../x' }, 'collection'],
      [{ app_id: 'a b' }, 'app_id'],
      [{ data: 'text' }, 'data'],
      [{ data: [1] }, 'data'],
      [{ toString: 1 }, 'toString'],
    ];
    for (const [body, place] of refused) {
      const answer = await quote(body);
      expect([answer.status, answer.body['code']]).toEqual([400, 'VALIDATION_FAILED']);
      expect(Object.keys(answer.body['details'] as object)).toEqual([place]);
    }
    const unknown = await quote({ app_id: `t-${app.appId}` });
    expect([unknown.status, unknown.body['code']]).toEqual([404, 'APP_NOT_FOUND']);
    expect((await quote({}, { 'x-app-key': 'app_unknown' })).status).toBe(401);
    expect((await quote({ data: { text: 'x'.repeat(70_000) } })).status).toBe(413);
  });
});

test('without configured prices a quote is of nothing, and has all fields', async () => {
  const granary = await borrowGranary('direct');
  try {
    const app = await newApp(granary);
    const body = { app_id: app.appId, operation_type: 'write', size_kb: 1_000, collection: 'films' };
    const answer = await send<Quote>(granary.url, 'POST', '/pricing/quote', { body });
    expect([answer.status, answer.body.total_cost_utia, answer.body['total_cost']]).toEqual([200, 0, 0]);
  } finally {
    await granary.stop();
  }
});
