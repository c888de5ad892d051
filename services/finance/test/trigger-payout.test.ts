import { randomUUID } from 'node:crypto';
import type { ServiceError } from '@granary/shared/errors';
import { eventually, eventuallyResolves } from '@granary/testing/eventually';
import { feeCollector } from '../src/chain/module-accounts';
import { call, startTestFinance, type TestFinance } from './support/harness';
import { newAddress } from './support/payout-copies';

let finance: TestFinance;
beforeAll(async () => {
  finance = await startTestFinance({ PAYOUT_FLOOR_UTIA: '1000', PAYOUT_INTERVAL_MS: '0' });
});
afterAll(() => finance.stop());

const wallet = (appId: string) => finance.client.getWallet({ appId }, call());
const fund = async (appId: string, amount: number): Promise<void> => {
  const before = Number((await wallet(appId)).totalEarned);
  await finance.client.fundWallet({ appId, amount: amount.toString() }, call());
  await eventually(async () => Number((await wallet(appId)).totalEarned) === before + amount);
};
async function fundedApp(amount: number): Promise<string> {
  const app = `a${randomUUID().slice(0, 13)}`;
  await fund(app, amount);
  return app;
}
const settings = (appId: string, change: object) => finance.client.updatePayoutSettings({ appId, ...change }, call());
const trigger = async (appId: string, request: { amount?: string; payoutAddress?: string } = {}) =>
  (await finance.client.triggerPayout({ appId, ...request }, call())).payout!;
const reasonOf = (request: Promise<unknown>) =>
  request.then(
    () => 'accepted',
    (error: unknown) => (error as ServiceError).reason,
  );
const history = async (appId: string) =>
  (await finance.client.listPayouts({ appId, limit: 100, offset: 0, status: '' }, call())).payouts;
const final = (appId: string, payoutId: string) =>
  eventually(async () => {
    const found = (await history(appId)).find((payout) => payout.payoutId === payoutId)!;
    return ['confirmed', 'failed'].includes(found.status) && found;
  });

test('a payout is held at once, paid on the chain, and leaves the wallet; the address of a request holds for it only', async () => {
  const app = await fundedApp(100_000);
  const [own, once] = [newAddress(), newAddress()];
  await settings(app, { payoutDestination: own });
  const first = await trigger(app, { amount: '30000', payoutAddress: once });
  expect(first).toMatchObject({ amount: '30000', destination: once, trigger: 'manual', status: 'pending' });
  const held = await wallet(app);
  expect(BigInt(held.balance) - BigInt(held.pendingPayouts)).toBe(70_000n);
  expect(await final(app, first.payoutId)).toMatchObject({
    status: 'confirmed',
    txHash: expect.stringMatching(/^[0-9A-F]{64}$/) as string,
  });
  const second = await trigger(app);
  expect(second).toMatchObject({ amount: '70000', destination: own });
  expect(await final(app, second.payoutId)).toMatchObject({ status: 'confirmed' });
  expect(await wallet(app)).toMatchObject({
    balance: '0',
    pendingPayouts: '0',
    availableBalance: '0',
    totalEarned: '100000',
    totalSpent: '0',
    totalPaidOut: '100000',
  });
});

test('each refusal has its reason and changes nothing', async () => {
  const app = await fundedApp(100_000);
  const before = await wallet(app);
  expect(await reasonOf(trigger(app))).toBe('PAYOUT_DESTINATION_MISSING');
  await settings(app, { payoutDestination: newAddress(), lockedBalance: '90000', minPayout: '2000' });
  expect(await reasonOf(trigger(app, { amount: '10001' }))).toBe('INSUFFICIENT_FUNDS');
  expect(await reasonOf(trigger(app, { amount: '1999' }))).toBe('PAYOUT_BELOW_MINIMUM');
  await settings(app, { minPayout: '10' });
  expect(await reasonOf(trigger(app, { amount: '999' }))).toBe('PAYOUT_BELOW_MINIMUM');
  await settings(app, { minPayout: '10001' });
  expect(await reasonOf(trigger(app))).toBe('PAYOUT_BELOW_MINIMUM');
  for (const amount of ['0', '-1', '9007199254740992']) {
    expect(await reasonOf(trigger(app, { amount }))).toBe('VALIDATION_FAILED');
  }
  const { address } = await wallet(await fundedApp(1_000));
  for (const payoutAddress of ['', newAddress().toUpperCase(), newAddress().slice(0, -1), address]) {
    expect(await reasonOf(trigger(app, { payoutAddress }))).toBe('VALIDATION_FAILED');
  }
  const empty = `a${randomUUID().slice(0, 13)}`;
  expect(await reasonOf(trigger(empty, { payoutAddress: newAddress() }))).toBe('INSUFFICIENT_FUNDS');
  expect(await history(app)).toEqual([]);
  expect(await wallet(app)).toMatchObject({ balance: before.balance, pendingPayouts: '0' });
});

test('of 50 triggers at once only so many are accepted as the balance above what is locked can pay', async () => {
  const app = await fundedApp(100_000);
  await settings(app, { payoutDestination: newAddress(), lockedBalance: '30000' });
  const reasons = await Promise.all(Array.from({ length: 50 }, () => reasonOf(trigger(app, { amount: '10000' }))));
  expect(reasons.filter((reason) => reason === 'accepted')).toHaveLength(7);
  expect(new Set(reasons)).toEqual(new Set(['accepted', 'INSUFFICIENT_FUNDS']));
  await eventually(async () => (await wallet(app)).totalPaidOut === '70000');
  expect(await wallet(app)).toMatchObject({ balance: '30000', pendingPayouts: '0' });
});

test('a payout that the chain refuses fails with the reason, and its amount is available again', async () => {
  const app = await fundedApp(50_000);
  const { payoutId } = await trigger(app, { payoutAddress: feeCollector('celestia') });
  expect(await final(app, payoutId)).toMatchObject({ status: 'failed', error: 'the chain refused it with code 4' });
  expect(await wallet(app)).toMatchObject({ availableBalance: '50000', totalPaidOut: '0' });
});

test('an address that the chain has refused takes no further payout of the app for an hour; another address does', async () => {
  const [app, other] = [await fundedApp(50_000), await fundedApp(50_000)];
  const blocked = feeCollector('celestia');
  await settings(app, { payoutDestination: blocked });
  const { payoutId } = await trigger(app, { amount: '2000' });
  expect(await final(app, payoutId)).toMatchObject({ status: 'failed' });
  const before = await wallet(app);
  for (const request of [{}, { amount: '1000' }, { payoutAddress: blocked }]) {
    const error = (await trigger(app, request).catch((reason: unknown) => reason)) as ServiceError;
    expect(error).toMatchObject({ code: 'ALREADY_EXISTS', reason: 'PAYOUT_DESTINATION_REFUSED' });
    const untilMs = Date.parse(error.details.until as string) - Date.parse((await history(app))[0]!.updatedAt);
    expect(untilMs).toBe(3_600_000);
  }
  expect(await history(app)).toHaveLength(1);
  expect(await wallet(app)).toEqual(before);
  // Only of this app, and only to this address.
  expect(await reasonOf(trigger(app, { amount: '1000', payoutAddress: newAddress() }))).toBe('accepted');
  expect(await reasonOf(trigger(other, { amount: '1000', payoutAddress: blocked }))).toBe('accepted');
});

test('a refused address is tried again after an hour, or once the chain has paid to it', async () => {
  const [app, blocked] = [await fundedApp(50_000), feeCollector('celestia')];
  const refuse = async () => {
    const { payoutId } = await trigger(app, { amount: '1000', payoutAddress: blocked });
    expect(await final(app, payoutId)).toMatchObject({ status: 'failed' });
    expect(await reasonOf(trigger(app, { amount: '1000', payoutAddress: blocked }))).toBe('PAYOUT_DESTINATION_REFUSED');
  };
  await refuse();
  await finance.pool.query(`update payout set updated_at = updated_at - interval '61 minutes' where app_id = $1`, [
    app,
  ]);
  await refuse();
  await finance.pool.query(
    `insert into payout (id, app_id, amount, destination, trigger, status, created_at, updated_at)
     select gen_random_uuid(), app_id, 1, destination, 'manual', 'confirmed', now(), now() from payout
     where app_id = $1 limit 1`,
    [app],
  );
  expect(await reasonOf(trigger(app, { amount: '1000', payoutAddress: blocked }))).toBe('accepted');
});

test('what is deposited is paid out automatically from the threshold on, without a destination never', async () => {
  const [app, without] = [await fundedApp(5_000), await fundedApp(50_000)];
  const automatic = { autoPayoutEnabled: true, payoutThreshold: '20000', lockedBalance: '1000' };
  await settings(app, { ...automatic, payoutDestination: newAddress() });
  await settings(without, automatic);
  await fund(app, 14_999);
  await fund(without, 1);
  expect(await history(app)).toEqual([]);
  await finance.client.fundWallet({ appId: app, amount: '1001' }, call());
  await eventually(async () => (await wallet(app)).totalPaidOut === '20000');
  expect((await history(app)).map(({ amount, trigger: by }) => [amount, by])).toEqual([['20000', 'auto']]);
  expect(await history(without)).toEqual([]);
});

test('health names the simulated chain, and payouts and deposits as parts', async () => {
  await eventuallyResolves(async () => {
    const { parts } = await finance.health.check({}, call());
    const found = new Map(parts.map(({ name, status, message }) => [name, { status, message }]));
    expect(found.get('chain')).toEqual({
      status: 'HEALTHY',
      message: expect.stringMatching(/^granary-simulated-[0-9a-f]{8} is simulated/) as string,
    });
    expect(found.get('payouts')).toEqual({ status: 'HEALTHY', message: '' });
    expect(found.get('deposits')).toEqual({ status: 'HEALTHY', message: '' });
  });
});

test('the faucet gives no more than is configured at a time, and nothing when it is closed', async () => {
  const app = `a${randomUUID().slice(0, 13)}`;
  await finance.restart({ FAUCET_UTIA_MAX: '500' });
  const ask = (amount: string) => reasonOf(finance.client.fundWallet({ appId: app, amount }, call()));
  expect(await ask('501')).toBe('VALIDATION_FAILED');
  expect(await ask('500')).toBe('accepted');
  await finance.restart({ FAUCET_UTIA_MAX: '0' });
  expect(await ask('1')).toBe('FORBIDDEN');
});
