import { setTimeout as delay } from 'node:timers/promises';
import { eventually } from '@granary/testing/eventually';
import { decoded, encoded, newPayer, version1, version2, type Requirement } from '@granary/testing/x402-client';
import { newApp, operatorKey, send, transports, type Granary, type TestApp } from '../support/granary';
import { startGranary } from '../support/own-granary';
import { isPaymentPending } from '../support/priced-app';

interface Answered extends Record<string, unknown> {
  accepts: Requirement[];
  code: string;
  details: { reason?: string };
}

const price = 250_000;

describe.each(transports)('what an encrypted index costs (%s)', (transport) => {
  let granary: Granary;
  let app: TestApp;
  let path: string;
  beforeAll(async () => {
    const settings = { payments: { ENCRYPTED_INDEX_UTIA: String(price), X402_PAY_TO: 'simulated' } };
    granary = await startGranary(transport, { settings });
  });
  afterAll(() => granary.stop());
  beforeEach(async () => {
    app = await newApp(granary);
    path = `/api/apps/${app.appId}`;
  });

  const definition = { name: 'by_email', collection: 'people', field_name: 'email', index_type: 'Encrypted' };
  /** Again while the payment is being settled. */
  const create = async (body: object = definition, headers: Record<string, string> = {}) => {
    for (;;) {
      const answer = await app.call<Answered>('POST', `${path}/indexes`, body, headers);
      if (!isPaymentPending(answer) && answer.status !== 503) return answer;
      await delay(100);
    }
  };
  const quote = async (query = '') => (await app.call<Answered>('GET', `${path}/indexes/encrypted-quote${query}`)).body;
  const paying = async (requirement: Requirement) => ({
    'x-payment': encoded(await version1(await newPayer(), requirement)),
  });
  const indexes = async () => (await app.call<unknown[]>('GET', `${path}/indexes`)).body.length;

  test('a quote says the price and how it may be paid', async () => {
    const asked = await quote('?collection=people&field_name=email');
    expect(asked).toMatchObject({ price_utia: price, x402Version: 1, error: '' });
    expect(asked['quote_id']).toBe((asked.accepts[0]!.extra as { quoteId?: string }).quoteId);
    expect(Date.parse(String(asked['expires_at']))).toBeGreaterThan(Date.now());
    expect(asked.accepts[0]!.extra).toMatchObject({ costBreakdown: { app: 0, platform: price, total: price } });
    expect((await app.call('GET', `${path}/indexes/encrypted-quote?collection=people`)).status).toBe(400);
    expect((await send(granary.url, 'GET', `${path}/indexes/encrypted-quote`)).status).toBe(401);
  });

  test('without a payment it is 402 and nothing is made, not even the collection', async () => {
    const refused = await create();
    expect([refused.status, refused.headers.get('cache-control')]).toEqual([402, 'no-store']);
    expect(refused.body).toMatchObject({
      code: 'PAYMENT_REQUIRED',
      error: `An encrypted index costs ${price} utia`,
      details: { amount_utia: price, pricing_model: 'per_index', fields: ['email'] },
    });
    expect(await indexes()).toBe(0);
    expect((await app.call('GET', `${path}/collections/people`)).status).toBe(404);
  });

  test.each(['', '?collection=people&field_name=email'])('a quote by encrypted-quote%s pays once', async (query) => {
    const payment = await paying((await quote(query)).accepts[0]!);
    const made = await create(definition, payment);
    expect([made.status, made.body]).toEqual([201, expect.objectContaining({ index_type: 'encrypted' })]);
    const again = await create(definition, payment);
    expect([again.status, again.headers.get('idempotency-replayed')]).toEqual([201, 'true']);
    const other = await create({ ...definition, name: 'by_phone', field_name: 'phone' }, payment);
    expect(other.status).toBeGreaterThanOrEqual(402);
    expect(await indexes()).toBe(1);
    // The same definition again costs nothing.
    expect((await create()).status).toBe(200);
  });

  test('a payment makes one index, whichever key of the app sends it', async () => {
    const payment = await paying((await quote()).accepts[0]!);
    expect((await create(definition, payment)).status).toBe(201);
    const made = await app.call<{ app_key: string }>('POST', `${path}/regenerate-key`, {
      name: 'second',
      permissions: ['Admin'],
    });
    const body = { ...definition, name: 'by_phone', field_name: 'phone' };
    const headers = { ...payment, 'x-app-key': made.body.app_key };
    const other = await send<Answered>(granary.url, 'POST', `${path}/indexes`, { body, headers });
    expect([other.status, other.body.code]).toEqual([422, 'IDEMPOTENCY_KEY_REUSED']);
    expect(await indexes()).toBe(1);
  });

  test('the requirements of the 402 pay as well, by version 2 too', async () => {
    const { headers } = await create();
    const requirement = decoded<{ accepts: Requirement[] }>(headers.get('payment-required')).accepts[0]!;
    const payment = { 'payment-signature': encoded(await version2(await newPayer(), requirement)) };
    expect((await create(definition, payment)).status).toBe(201);
  });

  test('a quote for one field pays for no other, nor for another app', async () => {
    const { headers } = await app.call('GET', `${path}/indexes/encrypted-quote?collection=people&field_name=email`);
    const requirement = decoded<{ accepts: Requirement[] }>(headers.get('payment-required')).accepts[0]!;
    const payment = { 'payment-signature': encoded(await version2(await newPayer(), requirement)) };
    const other = await create({ ...definition, field_name: 'phone' }, payment);
    expect([other.status, other.body.code]).toEqual([402, 'PAYMENT_REFUSED']);
    const foreign = await newApp(granary);
    const elsewhere = await foreign.call<Answered>('POST', `/api/apps/${foreign.appId}/indexes`, definition, payment);
    expect([elsewhere.status, elsewhere.body.code]).toEqual([402, 'PAYMENT_REFUSED']);
    expect((await create(definition, payment)).status).toBe(201);
  });

  test('what cannot be done is refused before it is paid', async () => {
    await app.store('people', [{ id: 'a', email: 'x' }]);
    for (const headers of [{}, await paying((await quote()).accepts[0]!)]) {
      const refused = await create(definition, headers);
      expect([refused.status, refused.body.code]).toEqual([409, 'ENCRYPTION_CONFLICT']);
    }
  });

  test('twenty requests with one payment make one index', async () => {
    const payment = await paying((await quote()).accepts[0]!);
    const answers = await Promise.all(Array.from({ length: 20 }, () => create(definition, payment)));
    // Those that are tried once it is there find it.
    const statuses = answers.map(({ status }) => status);
    expect([statuses.every((status) => status === 201 || status === 200), statuses.includes(201)]).toEqual([
      true,
      true,
    ]);
    expect(await indexes()).toBe(1);
  });

  const balanceOf = async (of: TestApp) =>
    (await of.call<{ balance: number }>('GET', `/api/apps/${of.appId}/wallet`)).body.balance;
  /** An agent key of an app with money. */
  const agentKey = async (payer: TestApp, amount: number, pay_limits: object) => {
    const headers = { 'x-operator-key': operatorKey };
    await send(granary.url, 'POST', `/api/apps/${payer.appId}/faucet`, { body: { amount }, headers });
    await eventually(async () => (await balanceOf(payer)) === amount);
    const body = { name: 'agent', permissions: ['Pay'], pay_limits };
    return (await payer.call<{ app_key: string }>('POST', `/api/apps/${payer.appId}/regenerate-key`, body)).body
      .app_key;
  };

  test.each(['another application', 'its own application'])('an agent key of %s pays, once', async (whose) => {
    const payer = whose === 'its own application' ? app : await newApp(granary);
    const key = await agentKey(payer, 3 * price, { allowed_target_apps: [app.appId], spend_allowance: price });
    const headers = { 'x-agent-key': key, 'idempotency-key': 'once' };
    const made = await create(definition, headers);
    expect([made.status, made.headers.get('cache-control')]).toEqual([201, 'no-store']);
    const again = await create(definition, headers);
    expect([again.status, again.headers.get('idempotency-replayed')]).toEqual([201, 'true']);
    expect((await create(definition, { 'x-agent-key': key })).status).toBe(200);
    // All of it is for the platform.
    expect([await balanceOf(payer), await balanceOf(app)]).toEqual([2 * price, payer === app ? 2 * price : 0]);
    const phone = { ...definition, name: 'by_phone', field_name: 'phone' };
    const spent = await create(phone, { 'x-agent-key': key });
    expect([spent.status, spent.body.code, spent.body.details.reason]).toEqual([
      402,
      'PAYMENT_REFUSED',
      'allowance_spent',
    ]);
    expect([await indexes(), await balanceOf(payer)]).toEqual([1, 2 * price]);
  });

  test('ten requests at once by an agent key pay for one index', async () => {
    const payer = await newApp(granary);
    const key = await agentKey(payer, 20 * price, { allowed_target_apps: [app.appId] });
    const answers = await Promise.all(Array.from({ length: 10 }, () => create(definition, { 'x-agent-key': key })));
    expect(answers.filter(({ status }) => status === 201)).toHaveLength(1);
    expect(answers.filter(({ status }) => status === 200)).toHaveLength(9);
    await eventually(async () => (await balanceOf(payer)) === 19 * price);
  });

  test('a key that may not pay is refused, and what cannot be done costs an agent key nothing', async () => {
    const [unknown, foreign] = [{ 'x-agent-key': 'app_unknown' }, { 'x-agent-key': app.key }];
    expect((await create(definition, unknown)).status).toBe(401);
    expect((await create(definition, foreign)).status).toBe(403);
    expect(await indexes()).toBe(0);
    const payer = await newApp(granary);
    const key = await agentKey(payer, price, { allowed_target_apps: [app.appId] });
    await app.store('people', [{ id: 'a', email: 'x' }]);
    const refused = await create(definition, { 'x-agent-key': key });
    expect([refused.status, refused.body.code]).toEqual([409, 'ENCRYPTION_CONFLICT']);
    expect(await balanceOf(payer)).toBe(price);
  });

  test('two ways to pay in one request are 400, and nothing is made', async () => {
    const payment = await paying((await quote()).accepts[0]!);
    const [agent, user] = [{ 'x-agent-key': 'x' }, { 'x-user-key': 'x' }];
    for (const headers of [
      { ...payment, ...agent },
      { ...payment, ...user },
      { ...agent, ...user },
    ]) {
      const refused = await create(definition, headers);
      expect([refused.status, refused.body.code]).toEqual([400, 'VALIDATION_FAILED']);
    }
    expect(await indexes()).toBe(0);
  });
});
