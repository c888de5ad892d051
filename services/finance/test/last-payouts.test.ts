import { randomUUID } from 'node:crypto';
import { execute, rows } from '@granary/shared/postgres/pool';
import { sql } from '@granary/shared/postgres/sql';
import { transferId } from '@granary/shared/money/transfer-id';
import { renderMetrics } from '@granary/shared/telemetry/metrics';
import { eventually, eventuallyResolves } from '@granary/testing/eventually';
import { feeCollector } from '../src/chain/module-accounts';
import { listStranded, setLastDestination } from '../src/closing/stranded-wallets';
import { postTransfer } from './support/ledger';
import { startAutoPayouts } from '../src/payouts/auto-payouts';
import { getWallet } from '../src/wallets/wallet';
import { call, financePool, startTestFinance, type TestFinance } from './support/harness';
import { newAddress, openPayoutBench } from './support/payout-copies';

const GiB = 2 ** 30;
const started = Date.UTC(2026, 0, 1);
const day = (days: number) => new Date(started + days * 86_400_000);

let finance: TestFinance;
let app: string;
beforeAll(async () => {
  finance = await startTestFinance({ PAYOUT_FLOOR_UTIA: '1000', PAYOUT_INTERVAL_MS: '0' });
});
afterAll(() => finance.stop());
beforeEach(() => {
  finance.clock.now = day(0);
  app = `a${randomUUID().slice(0, 8)}`;
});

const wallet = () => finance.client.getWallet({ appId: app }, call());
const settings = (change: object) => finance.client.updatePayoutSettings({ appId: app, ...change }, call());
const history = async () =>
  (await finance.client.listPayouts({ appId: app, limit: 100, offset: 0, status: '' }, call())).payouts;
async function fund(amount: number): Promise<void> {
  const before = Number((await wallet()).totalEarned);
  await finance.client.fundWallet({ appId: app, amount: String(amount) }, call());
  await eventually(async () => Number((await wallet()).totalEarned) === before + amount);
}
/** A GiB of a collection from the first day on, of which 30 cost nothing; a day more costs 1,000 utia. */
async function storesGiB(number = 1): Promise<void> {
  await finance.data.publish('collection.usage', {
    app_id: app,
    collection: `notes${number}`,
    collection_number: number,
    size_bytes: GiB,
    document_count: 1,
    retention_days: null,
    at: day(0).toISOString(),
  });
}
const deleted = async (atDay: number) => {
  finance.clock.now = day(atDay);
  await finance.data.publish('app.deleted', { app_id: app, at: day(atDay).toISOString() });
  await eventually(async () => (await execute(finance.pool, sql`select from deleted_app where app_id = ${app}`)) === 1);
};
const charges = () =>
  rows<{ amount: string; moved: bigint }>(
    finance.pool,
    sql`select amount, moved from retention_charge where app_id = ${app} order by charged_at, collection`,
  );

const stoppedApps = async (): Promise<number> =>
  Number(/^granary_auto_payouts_stopped (\d+)$/m.exec(await renderMetrics())![1]);

test('the wallet of a deleted app is paid out once: first what it owes for retention, then all that is left, also what is locked', async () => {
  const destination = newAddress();
  await fund(100_000);
  await settings({
    payoutDestination: destination,
    lockedBalance: '90000',
    minPayout: '99999',
    autoPayoutEnabled: true,
  });
  await storesGiB(1);
  await storesGiB(2);
  await deleted(40);
  await eventually(async () => (await wallet()).totalPaidOut === '80000');
  expect(await wallet()).toMatchObject({ balance: '0', pendingPayouts: '0', totalSpent: '20000' });
  expect((await history()).map(({ amount, trigger, status }) => [amount, trigger, status])).toEqual([
    ['80000', 'auto', 'confirmed'],
  ]);
  expect(await charges()).toEqual([
    { amount: '10000', moved: 10_000n },
    { amount: '10000', moved: 10_000n },
  ]);
  // No period that ends later is charged again, and what arrives later is paid out too.
  finance.clock.now = day(100);
  await fund(5_000);
  await eventually(async () => (await wallet()).totalPaidOut === '85000');
  expect(await charges()).toHaveLength(2);
  expect(await wallet()).toMatchObject({ balance: '0', totalSpent: '20000' });
});

test('what a deleted app owes takes all that it has; what it cannot pay stays owed and is charged when money arrives', async () => {
  await fund(4_000);
  await settings({ payoutDestination: newAddress() });
  await storesGiB();
  await deleted(40);
  await eventually(async () => (await wallet()).totalSpent === '4000');
  await fund(9_000);
  await eventually(async () => (await wallet()).totalPaidOut === '3000');
  expect(await wallet()).toMatchObject({ balance: '0', totalSpent: '10000' });
});

test('a rest below the floor stays', async () => {
  await fund(1_999);
  await settings({ payoutDestination: newAddress() });
  await finance.data.publish('collection.usage', {
    app_id: app,
    collection: 'notes',
    collection_number: 1,
    size_bytes: GiB,
    document_count: 1,
    retention_days: null,
    at: day(0).toISOString(),
  });
  await deleted(31);
  await eventually(async () => (await wallet()).totalSpent === '1000');
  expect(await history()).toEqual([]);
  expect(await wallet()).toMatchObject({ balance: '999' });
});

test('without a destination the money stays, the operator sees it, and it is paid out once there is one', async () => {
  await fund(50_000);
  await deleted(1);
  await fund(1);
  expect(await history()).toEqual([]);
  const mine = async () => (await listStranded(finance.pool)).filter(({ appId }) => appId === app);
  expect(await mine()).toEqual([{ appId: app, amount: 50_001n, destination: null }]);
  expect(await renderMetrics()).toMatch(/^granary_stranded_utia [1-9]\d+$/m);
  const { address } = await wallet();
  await expect(setLastDestination(finance.pool, app, address)).rejects.toThrow(/wallet of this platform/);
  await expect(setLastDestination(finance.pool, app, newAddress().toUpperCase())).rejects.toThrow(/The address/);
  await expect(setLastDestination(finance.pool, 'not-deleted', newAddress())).rejects.toThrow(/no deleted application/);
  await setLastDestination(finance.pool, app, newAddress());
  await eventually(async () => (await wallet()).totalPaidOut === '50001');
  expect(await mine()).toEqual([]);
});

test('a destination that the chain refuses is tried once, and then is for the operator', async () => {
  await fund(50_000);
  await settings({ payoutDestination: feeCollector('celestia') });
  await deleted(1);
  await eventuallyResolves(async () => expect(await history()).toMatchObject([{ status: 'failed' }]));
  await fund(1);
  expect(await history()).toHaveLength(1);
  expect(await listStranded(finance.pool)).toContainEqual({
    appId: app,
    amount: 50_001n,
    destination: feeCollector('celestia'),
  });
});

test('three payouts that the chain refuses end the automatic ones to a destination, until it is another', async () => {
  await fund(50_000);
  await settings({ autoPayoutEnabled: true, payoutDestination: feeCollector('celestia') });
  await eventuallyResolves(async () => {
    await fund(1);
    expect((await history()).filter(({ status }) => status === 'failed')).toHaveLength(3);
  });
  await fund(1);
  await fund(1);
  expect(await history()).toHaveLength(3);
  expect(await stoppedApps()).toBe(1);
  // The same destination is no other one.
  await settings({ payoutDestination: feeCollector('celestia'), minPayout: '1' });
  await fund(1);
  expect(await history()).toHaveLength(3);
  await settings({ payoutDestination: newAddress() });
  expect(await stoppedApps()).toBe(0);
  await fund(1);
  await eventuallyResolves(async () => expect((await history())[0]).toMatchObject({ status: 'confirmed' }));
});

test('a payout that a person triggers lets automatic ones start again once it has arrived; the metric counts those that want any', async () => {
  const refuse = async () => {
    await eventuallyResolves(async () => {
      await fund(1);
      expect((await history()).slice(0, 3)).toEqual(Array(3).fill(expect.objectContaining({ status: 'failed' })));
    });
    expect(await stoppedApps()).toBe(1);
  };
  await fund(50_000);
  await settings({ autoPayoutEnabled: true, payoutDestination: feeCollector('celestia') });
  await refuse();
  const before = (await history()).length;
  await finance.client.triggerPayout({ appId: app, amount: '1000', payoutAddress: newAddress() }, call());
  await eventuallyResolves(async () => expect(await stoppedApps()).toBe(0));
  await fund(1);
  await eventuallyResolves(async () => expect((await history()).length).toBeGreaterThan(before + 1));
  await refuse();
  await settings({ autoPayoutEnabled: false });
  expect(await stoppedApps()).toBe(0);
  await settings({ autoPayoutEnabled: true });
  expect(await stoppedApps()).toBe(1);
  await deleted(1);
  await eventuallyResolves(async () => expect(await stoppedApps()).toBe(0));
});

test('an app whose debts cannot be charged keeps no other from being paid out', async () => {
  const good = app;
  // Before the other one in the order of a round.
  const broken = (app = `A${app}`);
  await fund(50_000);
  await storesGiB();
  await deleted(1);
  const corrupt = (later: string) =>
    execute(
      finance.pool,
      sql`update collection_generation set accrued_later = ${later}::jsonb where app_id = ${broken}`,
    );
  await corrupt('{}');
  await setLastDestination(finance.pool, broken, newAddress());
  app = good;
  await fund(60_000);
  await settings({ payoutDestination: newAddress() });
  await deleted(1);
  await eventually(async () => (await wallet()).totalPaidOut === '60000');
  await corrupt('[]');
  app = broken;
  await eventually(async () => (await wallet()).totalPaidOut === '50000');
});

test('no automatic payout takes the money of a deleted app before its debts', async () => {
  const { pool } = await financePool(1);
  const bench = await openPayoutBench(pool);
  await getWallet(bench.wallets, app);
  const gift = { id: transferId(new Date(0), 'deposit', app), kind: 'deposit', ref: '', amount: 5_000n };
  await postTransfer(pool, { ...gift, debitAccount: bench.chainAccount, creditAccount: `app:${app}` });
  await execute(pool, sql`update wallet set auto_payout_enabled = true, payout_destination = ${newAddress()}`);
  const start = () =>
    startAutoPayouts({ pool, rules: { floorUtia: 1n, chainAccount: bench.chainAccount }, intervalMs: 0 });
  await execute(pool, sql`insert into deleted_app (app_id, at) values (${app}, now())`);
  expect(await start()).toBe(0);
  await execute(pool, sql`delete from deleted_app`);
  expect(await start()).toBe(1);
  await pool.end();
});
