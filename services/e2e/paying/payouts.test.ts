import { eventually } from '@granary/testing/eventually';
import { borrowGranary, newApp, operatorKey, send, transports, type Granary, type TestApp } from '../support/granary';
import { newWallet } from '../support/wallet-signing';

interface Payout {
  payout_id: string;
  amount: number;
  destination: string;
  status: string;
  tx_hash: string | null;
}

describe.each(transports)('payouts (%s)', (transport) => {
  let granary: Granary;
  let app: TestApp;
  let path: string;
  beforeAll(async () => {
    granary = await borrowGranary(transport, 'simulated');
  });
  afterAll(() => granary.stop());
  beforeEach(async () => {
    app = await newApp(granary);
    path = `/api/apps/${app.appId}`;
  });

  const wallet = async () => (await app.call<Record<string, number>>('GET', `${path}/wallet`)).body;
  const faucet = (appId: string, body: object, key = operatorKey) =>
    send(granary.url, 'POST', `/api/apps/${appId}/faucet`, { body, headers: { 'x-operator-key': key } });
  const fund = async (amount: number) => {
    expect(await faucet(app.appId, { amount })).toMatchObject({ status: 202, body: { app_id: app.appId, amount } });
    await eventually(async () => (await wallet())['balance'] === amount);
  };
  const trigger = (body?: object) => app.call<Payout & { code?: string }>('POST', `${path}/payout/trigger`, body);
  const history = async (body: object = {}) =>
    (await app.call<{ payouts: Payout[] }>('POST', `${path}/payout/history`, body)).body.payouts;
  const confirmed = (id: string) =>
    eventually(async () => (await history({ status: 'confirmed' })).find(({ payout_id }) => payout_id === id));

  test('what is deposited is paid out, and the history shows the transaction', async () => {
    await fund(1_000_000);
    const { address } = newWallet();
    const started = await trigger({ amount: 400_000, payout_address: address });
    expect(started.status).toBe(202);
    expect(started.body).toEqual({
      payout_id: expect.any(String) as string,
      amount: 400_000,
      destination: address,
      trigger: 'manual',
      status: 'pending',
      tx_hash: null,
      error: null,
      created_at: expect.any(String) as string,
      updated_at: expect.any(String) as string,
    });
    const paid = await confirmed(started.body.payout_id);
    expect(paid.tx_hash).toMatch(/^[0-9A-F]{64}$/);
    await app.call('POST', `${path}/payout/settings`, { payout_destination: address, locked_balance: 100_000 });
    const rest = await trigger();
    expect(rest).toMatchObject({ status: 202, body: { amount: 500_000 } });
    await confirmed(rest.body.payout_id);
    const page = { limit: 1, offset: 1, status: 'confirmed' };
    const read = await app.call('GET', `${path}/payout/history?limit=1&offset=1&status=confirmed`);
    expect(read).toMatchObject({ status: 200, body: { total: 2, limit: 1, offset: 1 } });
    expect(read.body).toEqual((await app.call('POST', `${path}/payout/history`, page)).body);
    const info = await app.call('GET', `${path}/payout/info`);
    expect(info).toMatchObject({ status: 200, body: { settings: { payout_destination: address } } });
    expect(info.body).toEqual((await app.call('POST', `${path}/payout/info`)).body);
    expect((await app.call('GET', `${path}/payout/history?status=done`)).status).toBe(400);
    expect(await wallet()).toMatchObject({
      balance: 100_000,
      locked_balance: 100_000,
      pending_payouts: 0,
      available_balance: 0,
      total_earned: 1_000_000,
      total_spent: 0,
      total_paid_out: 900_000,
    });
  });

  test('a payout without destination, below the minimum or beyond the balance is 409, and changes nothing', async () => {
    await fund(500_000);
    const before = await wallet();
    expect(await trigger()).toMatchObject({ status: 409, body: { code: 'PAYOUT_DESTINATION_MISSING' } });
    const { address } = newWallet();
    expect(await trigger({ amount: 49_999, payout_address: address })).toMatchObject({
      status: 409,
      body: { code: 'PAYOUT_BELOW_MINIMUM', details: { minimum: 50_000 } },
    });
    expect(await trigger({ amount: 500_001, payout_address: address })).toMatchObject({
      status: 409,
      body: { code: 'INSUFFICIENT_FUNDS', details: { available_balance: 500_000 } },
    });
    const own = String((await app.call<{ address: string }>('GET', `${path}/wallet`)).body.address);
    for (const wrong of [own, address.toUpperCase(), newWallet('cosmos').address]) {
      const refused = await trigger({ payout_address: wrong });
      expect(refused).toMatchObject({
        status: 400,
        body: { code: 'VALIDATION_FAILED', details: { payout_address: [expect.any(String)] } },
      });
    }
    expect(await history()).toEqual([]);
    expect(await wallet()).toEqual(before);
  });

  test('the faucet is for the operator, for apps that exist, and gives whole amounts up to its limit', async () => {
    expect((await faucet(app.appId, { amount: 5 }, 'wrong')).status).toBe(401);
    expect((await faucet('nobody-has-this', { amount: 5 })).body).toMatchObject({ code: 'APP_NOT_FOUND' });
    for (const amount of [0, -1, 1.5, '5', 1_000_000_001, undefined]) {
      expect((await faucet(app.appId, { amount })).body).toMatchObject({ code: 'VALIDATION_FAILED' });
    }
    expect(await wallet()).toMatchObject({ total_earned: 0 });
  });

  test('health says that the chain is simulated, and the app that there are payouts', async () => {
    const { checks } = (await send<{ checks: Record<string, Record<string, unknown>> }>(granary.url, 'GET', '/health'))
      .body;
    expect(checks['finance']!['chain']).toMatchObject({
      status: 'healthy',
      message: expect.stringMatching(
        /^granary-simulated-[0-9a-f]{8} is simulated: what is paid there is no money$/,
      ) as string,
    });
    expect((await app.call<{ features: string[] }>('GET', `${path}/health`)).body.features).toContain('payouts');
  });
});
