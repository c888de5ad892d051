import { eventually } from '@granary/testing/eventually';
import { simulatedName } from '@granary/testing/x402-client';
import { newApp, operatorKey, send, transports, type Granary, type TestApp } from '../support/granary';
import { startGranary } from '../support/own-granary';
import { sendRaw } from '../support/raw-http';

interface Refusal extends Record<string, unknown> {
  x402Version: number;
  error: string;
  accepts: Array<Record<string, unknown> & { extra: { quoteId: string } }>;
  code: string;
  details: { amount_utia: number; pricing_model: string; fields: string[]; size_bytes?: number; reason?: string };
}

describe.each(transports)('priced reads (%s)', (transport) => {
  let granary: Granary;
  let app: TestApp;
  beforeAll(async () => {
    granary = await startGranary(transport, {
      settings: { payments: { X402_PAY_TO: 'simulated,wallets' } },
    });
    // The chain of the wallets becomes known after the start.
    await eventually(async () => (await send(granary.url, 'GET', '/x402/supported')).text.includes('cosmos:'));
  });
  afterAll(() => granary.stop());
  beforeEach(async () => {
    app = await newApp(granary);
  });

  const perAccess = (utia: number) => ({ pricing_model: 'per_access', price_per_access_utia: utia });
  const index = async (field_name: string, priceUtia?: number, more: object = {}) => {
    const price = priceUtia === undefined ? {} : { read_price_config: perAccess(priceUtia) };
    const body = { name: `by_${field_name}`, collection: 'films', field_name, index_type: 'btree', ...price, ...more };
    const made = await app.call('POST', `/api/apps/${app.appId}/indexes`, body);
    expect([200, 201]).toContain(made.status);
  };
  /** As a stranger, or with headers. */
  const get = (path: string, headers: Record<string, string> = {}) =>
    send<Refusal>(granary.url, 'GET', path, { headers });
  const data = (query = '', collection = 'films') => `/api/apps/${app.appId}/collections/${collection}/data${query}`;
  /** What a stranger is asked for: 0 where the read is free. */
  const price = async (path: string): Promise<number> => {
    const { status, body } = await get(path);
    if (status === 200) return 0;
    expect([status, body.code]).toEqual([402, 'PAYMENT_REQUIRED']);
    return body.details.amount_utia;
  };
  const film = { id: 'one', title: 'Alien', year: 1979, stars: 5, director: { name: 'Scott', born: 1937 } };
  const query = async (name: string, baseQuery: object, more: object = {}) => {
    const body = { name, source_collection: 'films', base_query: baseQuery, ...more };
    expect((await app.call('POST', `/apps/${app.appId}/queries`, body)).status).toBe(201);
    return `/api/queries/${app.appId}/${name}/data`;
  };
  const view = async (name: string, definition: object, more: object = {}, sources = ['films']) => {
    const body = { name, source_collections: sources, query: definition, ...more };
    const made = await app.call<{ ticket_id: string }>('POST', `/apps/${app.appId}/views`, body);
    expect(made.status).toBe(202);
    expect((await app.ended(made.body.ticket_id)).status).toBe('Completed');
    return `/api/views/${app.appId}/${name}/data`;
  };

  test('a read costs the highest price of the fields that it is found by, sorted by or shown with, and nothing else', async () => {
    await app.store('films', [film]);
    await index('title');
    await index('year', 5);
    await index('stars', 9);
    await index('director.name', 3);
    const prices: Record<string, number> = { year: 5, stars: 9, director: 3, 'director.name': 3 };
    const filters = { '': '', title: 'title=Alien', year: 'year=1979', 'director.name': 'director.name.$gte=A' };
    const sorts = ['', 'title', '-year', 'stars', 'director.name,title'];
    const selects = ['', 'title', 'year,title', 'director.born', 'director', 'stars.deep', 'id'];
    const wrong: string[] = [];
    for (const [filtered, filter] of Object.entries(filters)) {
      for (const sort of sorts) {
        for (const select of selects) {
          const shown = select === '' ? Object.keys(prices) : select.split(',');
          const fields = [filtered, ...sort.split(',').map((name) => name.replace('-', '')), ...shown];
          const expected = Math.max(0, ...fields.map((name) => prices[name] ?? (name === 'stars.deep' ? 9 : 0)));
          const parts = [filter, sort && `sort=${sort}`, select && `select=${select}`].filter((part) => part !== '');
          const asked = await price(data(`?${parts.join('&')}`));
          if (asked !== expected) wrong.push(`${parts.join('&')}: ${asked}, not ${expected}`);
        }
      }
    }
    expect(wrong).toEqual([]);
  });

  test('a collection has a price for every read, and a price by size is measured in KB of the answer, rounded up', async () => {
    await app.store('films', [film]);
    const path = `/api/apps/${app.appId}/collections/films`;
    const priced = (read_price_config: object) => app.call('PUT', path, { read_price_config });
    const perKb = { pricing_model: 'per_kb', price_per_kb_tia: 0.001 };
    const made = await priced(perKb);
    const shown = { pricing_model: 'per_kb', price_per_kb_tia: 0.001, price_per_kb_utia: 1_000 };
    expect(made.body['read_price_config']).toEqual(shown);
    expect((await app.call('GET', path)).body['read_price_config']).toEqual(shown);
    const own = await app.call('GET', data('?select=title'));
    expect(own.status).toBe(200);
    const { status, body } = await get(data('?select=title'));
    expect(status).toBe(402);
    expect(body.details).toEqual({
      amount_utia: Math.ceil((own.text.length * 1_000) / 1_024),
      pricing_model: 'per_kb',
      fields: ['*'],
      size_bytes: own.text.length,
    });
    // With a field of another price the higher one counts, whichever that is.
    await index('year', 2_000);
    expect(await price(data('?year=1979&select=title'))).toBe(2_000);
    expect(await price(data('?select=title'))).toBe(body.details.amount_utia);
    expect((await priced({})).body).not.toHaveProperty('read_price_config');
    expect(await price(data('?select=title'))).toBe(0);
  });

  test('views and predefined queries cost what they read of their sources, or their own price', async () => {
    await app.store('films', [film]);
    await app.store('people', [{ id: 'Scott', salary: 7 }]);
    await index('year', 5);
    await index('stars', 9);
    await index('salary', 70, { collection: 'people' });
    const grouped = { group_by: 'year', aggregate: { films: { $count: '*' } } };
    const joined = { join: { person: { collection: 'people', on: { id: '$data.director.name' } } } };
    const inner = { find: { id: '$data.director.name' }, select: { salary: true } };
    const resolve = (select: object) => ({ person: { resolve: { ...inner, select }, model: 'people' } });
    const paths: Array<[expected: number, path: string]> = [
      [0, await view('titles', { select: ['title'] })],
      [5, await view('years', grouped)],
      [5, await view('live_years', grouped, { refresh_mode: 'live' })],
      [9, await view('sums', { group_by: 'title', aggregate: { sum: { $sum: 'stars' } } })],
      [5, await view('ordered', { select: ['title'], sort_by: 'year', limit: 10 })],
      [70, await view('paid', { select: ['title', 'person'], ...joined }, {}, ['films', 'people'])],
      [0, await view('names', { select: ['title', 'person.id'], ...joined }, {}, ['films', 'people'])],
      [1, await view('own', grouped, { read_price_config: perAccess(1) })],
      [0, await view('given', grouped, { read_price_config: perAccess(0) })],
      [9, await query('everything', {})],
      [5, await query('without_stars', { select: { stars: false } })],
      [0, await query('cheap', { select: { stars: false, year: false } })],
      [5, await query('found', { find: { year: { gt: 1900 } }, select: ['title'] })],
      [70, await query('salaries', { find: resolve({ salary: true }), select: ['title'] })],
      [0, await query('no_salaries', { find: resolve({ id: true }), select: ['title'] })],
      [2, await query('own', {}, { read_price_config: perAccess(2) })],
    ];
    const asked = await Promise.all(paths.map(async ([, path]) => [await price(path), path]));
    expect(asked).toEqual(paths);
    // A stranger's own join, and the parameter of a query, touch fields too.
    const filter = encodeURIComponent(JSON.stringify({ person: { resolve: { select: ['salary'] }, model: 'people' } }));
    expect(await price(`/api/views/${app.appId}/titles/data?filter=${filter}`)).toBe(70);
    const parameters = [{ name: 'stars', field_path: 'stars' }];
    const rated = await query('rated', { select: ['title'] }, { parameters });
    expect([await price(rated), await price(`${rated}?stars=5`)]).toEqual([0, 9]);
    const shownView = (await app.call('GET', `/apps/${app.appId}/views/own`)).body;
    expect(shownView['read_price_config']).toMatchObject({ price_per_access_utia: 1, price_per_access_tia: 0.000001 });
    const shownQuery = (await app.call('GET', `/apps/${app.appId}/queries/own`)).body;
    expect(shownQuery['read_price_config']).toMatchObject({ price_per_access_utia: 2 });
  });

  test('the key of the app with Read and the operator read free, a key of another app does not, and a page that has not changed is not free either', async () => {
    await app.store('films', [film]);
    await index('year', 5);
    expect((await get(data(), { 'x-operator-key': operatorKey })).status).toBe(200);
    // The tag changes once more when the usage of the collection is published.
    const etag = await eventually(async () => {
      const own = await app.call('GET', data());
      expect([own.status, own.body['total']]).toEqual([200, 1]);
      const known = own.headers.get('etag')!;
      const again = await app.call('GET', data(), undefined, { 'if-none-match': known });
      return again.status === 304 ? known : undefined;
    });
    for (const headers of [{ 'if-none-match': etag }, { 'if-none-match': '*' }]) {
      expect((await get(data(), headers)).status).toBe(402);
    }
    const other = await newApp(granary);
    expect((await get(data(), { 'x-app-key': other.key })).status).toBe(402);
    const head = await fetch(granary.url + data(), { method: 'HEAD', headers: { 'x-agent-key': app.key } });
    expect([head.status, head.headers.get('payment-required')]).toEqual([402, expect.any(String)]);
  });

  test('the answer 402 has one body for old and new clients, the header of version 2, and is never cached', async () => {
    await app.store('films', [film]);
    await index('year', 250_000);
    const path = data('?year=1979&select=title');
    const { status, body, headers } = await get(path);
    expect(status).toBe(402);
    expect([headers.get('cache-control'), headers.get('etag')]).toEqual(['no-store', null]);
    const requirement = {
      scheme: 'exact',
      network: expect.stringMatching(/^cosmos:granary-simulated-/) as string,
      maxAmountRequired: '250000',
      payTo: expect.stringMatching(/^celestia1/) as string,
      asset: 'utia',
      resource: granary.url + path,
      description: expect.any(String) as string,
      mimeType: 'application/json',
      maxTimeoutSeconds: 300,
      extra: {
        quoteId: expect.stringMatching(/^[A-Za-z0-9_-]{51}$/) as string,
        app: app.appId,
        request: expect.stringMatching(/^[A-Za-z0-9_-]{43}$/) as string,
        chainType: 'cosmos',
        paymentMethod: 'native',
        tokenSymbol: 'TIA',
        tokenDecimals: 6,
        costBreakdown: { app: 200_000, platform: 50_000, total: 250_000 },
        pricing: { baseAmount: '250000', baseAsset: 'utia', expiresAt: expect.any(Number) as number },
      },
    };
    expect(body).toEqual({
      x402Version: 1,
      error: 'The read costs 250000 utia',
      accepts: [
        requirement,
        {
          ...requirement,
          network: simulatedName,
          asset: expect.stringMatching(/^0x/) as string,
          payTo: expect.stringMatching(/^0x/) as string,
          extra: {
            ...requirement.extra,
            chainType: 'evm',
            paymentMethod: 'x402-facilitator',
            name: 'Simulated USDC',
            version: '2',
            tokenSymbol: 'Simulated USDC',
          },
        },
      ],
      code: 'PAYMENT_REQUIRED',
      details: { amount_utia: 250_000, pricing_model: 'per_access', fields: ['year'] },
    });
    const header = JSON.parse(Buffer.from(headers.get('payment-required')!, 'base64').toString()) as Refusal;
    const { scheme, network, payTo: address, asset, maxTimeoutSeconds, extra } = body.accepts[0]!;
    expect(header).toMatchObject({ x402Version: 2, error: body.error, resource: { url: granary.url + path } });
    expect(header.accepts[0]).toEqual({
      scheme,
      network,
      payTo: address,
      asset,
      maxTimeoutSeconds,
      extra,
      amount: '250000',
    });
    // A URL that does not fit the header is there without its query string.
    await index('title');
    const far = await get(data(`?year=1979&select=${Array(1_200).fill('title').join(',')}`));
    const text = far.headers.get('payment-required')!;
    expect([far.status, text.length < 8_192]).toEqual([402, true]);
    expect(JSON.parse(Buffer.from(text, 'base64').toString())).toMatchObject({
      resource: { url: granary.url + data() },
    });
  });

  test('the URL of what is paid for names no host that the request made up', async () => {
    await app.store('films', [film]);
    await index('year', 5);
    const path = data('?year=1979');
    const asked = async (target: string, headers: Record<string, string>) => {
      const { status, json, headers: answered } = await sendRaw(granary.url, { method: 'GET', path: target, headers });
      const { accepts } = json as { accepts: Array<{ resource: string }> };
      const header = Buffer.from(answered['payment-required'] as string, 'base64').toString();
      const { resource } = JSON.parse(header) as { resource: { url: string } };
      return [status, new Set([resource.url, ...accepts.map((each) => each.resource)])];
    };
    const right = [402, new Set([granary.url + path])];
    expect(await asked(path, { host: 'evil.example' })).toEqual(right);
    expect(await asked(path, { host: 'evil.example', 'x-forwarded-host': 'evil.example' })).toEqual(right);
    expect(await asked(`http://evil.example${path}`, { host: 'evil.example' })).toEqual(right);
  });

  test('a payment that pays nothing is refused with the reason, and a malformed one with 400', async () => {
    await app.store('films', [film]);
    await index('year', 5);
    await index('title', 5);
    const encoded = (value: object) => Buffer.from(JSON.stringify(value)).toString('base64');
    const pay = (value: object, path = data('?year=1979')) =>
      get(path, { 'x-payment': encoded({ x402Version: 1, ...value }) });
    const { network, extra } = (await get(data('?year=1979'))).body.accepts[0]!;
    const { quoteId } = extra;
    const empty = { scheme: 'exact', network, payload: {} };
    const reasonOf = async (value: object, path?: string) => {
      const { status, body, headers } = await pay(value, path);
      expect([status, body.code, headers.get('cache-control')]).toEqual([402, 'PAYMENT_REFUSED', 'no-store']);
      expect(body.accepts).toHaveLength(2);
      return body.details.reason;
    };
    expect(await reasonOf({ ...empty, quoteId })).toBe('invalid_payload');
    expect(await reasonOf(empty)).toBe('invalid_payload');
    expect(await reasonOf({ ...empty, quoteId, network: 'base' })).toBe('invalid_network');
    expect(await reasonOf({ network: 'base' })).toBe('invalid_network');
    const changed = `${quoteId.startsWith('A') ? 'B' : 'A'}${quoteId.slice(1)}`;
    for (const wrong of [changed, quoteId.slice(1), `${quoteId}A`, '', 'x', 7, {}]) {
      expect(await reasonOf({ quoteId: wrong })).toBe('quote_invalid');
    }
    // A quote is for one resource, however its parameters are ordered; of another app it is worth nothing.
    expect(await reasonOf({ quoteId }, data('?title=Alien'))).toBe('quote_invalid');
    const sorted = (await get(data('?year=1979&limit=5'))).body.accepts[0]!.extra.quoteId;
    expect(await reasonOf({ ...empty, quoteId: sorted }, data('?limit=5&year=1979'))).toBe('invalid_payload');
    expect(await reasonOf({ quoteId: sorted }, data('?limit=6&year=1979'))).toBe('quote_invalid');
    // The price has risen since.
    await index('year', 6);
    expect(await reasonOf({ quoteId })).toBe('quote_insufficient');
    const second = { x402Version: 2, accepted: { extra: { quoteId } } };
    const answer = await get(data('?year=1979'), { 'payment-signature': encoded(second) });
    expect([answer.status, answer.body.details.reason]).toEqual([402, 'quote_insufficient']);

    const payment = encoded({ x402Version: 1 });
    const malformed: Array<Record<string, string>> = [
      { 'x-payment': 'ey-_' },
      { 'x-payment': Buffer.from('[]').toString('base64') },
      { 'x-payment': Buffer.from('{"x402Version":1,"x402Version":1}').toString('base64') },
      { 'x-payment': Buffer.from('{').toString('base64') },
      { 'x-payment': encoded({ x402Version: 2 }) },
      { 'payment-signature': encoded({ x402Version: 1 }) },
      { 'x-payment': encoded({ x402Version: 1, more: 'x'.repeat(7_000) }) },
      { 'x-payment': payment, 'payment-signature': encoded({ x402Version: 2 }) },
      { 'x-payment': payment, 'x-agent-key': app.key },
    ];
    for (const headers of malformed) expect((await get(data(), headers)).status).toBe(400);
    const twice = [
      ['x-payment', payment],
      ['x-payment', payment],
    ];
    const { request } = await import('node:http');
    const status = await new Promise((resolve, reject) => {
      const sent = request(granary.url + data(), { headers: twice.flat() }, (response) => {
        response.resume();
        resolve(response.statusCode);
      });
      sent.on('error', reject).end();
    });
    expect(status).toBe(400);
  });

  test('prices are valid, are set by a key with Admin, and a change of them is seen at once', async () => {
    const { body: made } = await app.call<{ key: string; app_key: string }>(
      'POST',
      `/api/apps/${app.appId}/regenerate-key`,
      { name: 'writer', permissions: ['Read', 'Write'] },
    );
    const writer = { 'x-app-key': made.app_key ?? made.key };
    const path = `/api/apps/${app.appId}/collections`;
    const price_ = { read_price_config: perAccess(5) };
    const bodies: Array<[method: string, path: string, body: object]> = [
      ['POST', path, { name: 'other', ...price_ }],
      ['PUT', `${path}/films`, price_],
      ['POST', `/apps/${app.appId}/views`, { name: 'v', query: {}, source_collections: ['films'], ...price_ }],
      ['POST', `/apps/${app.appId}/queries`, { name: 'q', base_query: {}, source_collection: 'films', ...price_ }],
    ];
    await app.store('films', [film]);
    for (const [method, to, body] of bodies) {
      expect((await send(granary.url, method, to, { body, headers: writer })).status).toBe(403);
    }
    for (const [method, to, body] of bodies) {
      for (const wrong of [
        { pricing_model: 'per_access' },
        { pricing_model: 'per_day', price_per_access_utia: 5 },
        { pricing_model: 'per_kb', price_per_kb_tia: 0.0000001 },
        { pricing_model: 'per_kb', price_per_kb_utia: -1 },
        { pricing_model: 'per_kb', price_per_kb_utia: 1.5 },
      ]) {
        const answer = await app.call(method, to, { ...body, read_price_config: wrong });
        expect([answer.status, answer.body['code']]).toEqual([400, 'VALIDATION_FAILED']);
      }
    }
    expect(await price(data())).toBe(0);
    expect((await app.call('PUT', `${path}/films`, price_)).status).toBe(200);
    expect(await price(data())).toBe(5);
    expect((await app.call('PUT', `${path}/films`, { read_price_config: perAccess(6) })).status).toBe(200);
    expect(await price(data())).toBe(6);
    const quoted = await send(granary.url, 'POST', '/api/pricing/quote', {
      body: { app_id: app.appId, operation_type: 'read', collection: 'films', size_kb: 1 },
    });
    expect(quoted.body).toMatchObject({ total_cost_utia: 6, price: { index: 'films', field_name: '*' } });
  });
});
