import { randomUUID } from 'node:crypto';
import type { LedgerDefinition } from '@granary/shared/gen/granary/finance/v1/Ledger';
import { openClient, type OpenClient } from '@granary/shared/grpc/client';
import { eventuallyResolves } from '@granary/testing/eventually';
import { openTrust } from '@granary/shared/trust/trust';
import { ledgerDefinition } from '../src/service';
import { call, log, startTestFinance, testSecret, type TestFinance } from './support/harness';

const GiB = 2 ** 30;
const started = Date.UTC(2026, 0, 1);
const day = (days: number) => new Date(started + days * 86_400_000);

let finance: TestFinance;
let ledger: OpenClient<LedgerDefinition>;
let app: string;
beforeEach(async () => {
  finance = await startTestFinance();
  const trust = openTrust('payments', { INTERNAL_SECRET: testSecret }, log);
  ledger = openClient(
    ledgerDefinition,
    { address: finance.address() },
    { log, credentials: () => trust.towards('finance') },
  );
  app = `a${randomUUID().slice(0, 13)}`;
});
afterEach(async () => {
  ledger.close();
  await finance.stop();
});

async function earn(amount: number): Promise<void> {
  const transfer = {
    debitAccount: 'rates',
    creditAccount: `app:${app}`,
    amount: String(amount),
    ref: '',
    atMost: false,
    expiresAtMs: '0',
  };
  const { groups } = await ledger.client.apply(
    { groups: [{ commands: [{ id: randomUUID(), kind: 'income', transfer }] }] },
    call(),
  );
  expect(groups[0]!.results).toMatchObject([{ outcome: 'created' }]);
}

const about = { collection: 'notes', collection_number: 1 };
const holds = (atDay: number, bytes: number) =>
  finance.data.publish('collection.usage', {
    ...about,
    app_id: app,
    size_bytes: bytes,
    document_count: 1,
    retention_days: null,
    at: day(atDay).toISOString(),
  });
const deleted = (atDay: number) =>
  finance.data.publish('collection.deleted', { ...about, app_id: app, at: day(atDay).toISOString() });

const wallet = () => finance.client.getWallet({ appId: app }, call());
const costs = async () => (await finance.client.getRetentionCost({ appId: app }, call())).collections;

/** The wallet on a day, once its balance is as expected. */
async function walletOn(atDay: number, balance: number) {
  finance.clock.now = day(atDay);
  return eventuallyResolves(async () => {
    const found = await wallet();
    expect(found.balance).toBe(String(balance));
    return found;
  });
}

async function heard(bytes: number): Promise<void> {
  await eventuallyResolves(async () => expect(await costs()).toMatchObject([{ sizeBytes: String(bytes) }]));
}

test('each 30 days after the free ones are charged when they have ended, as entries of the ledger', async () => {
  await earn(100_000);
  await holds(0, GiB);
  await heard(GiB);
  expect(await walletOn(59, 100_000)).toMatchObject({ totalSpent: '0' });
  expect(await walletOn(61, 70_000)).toMatchObject({ totalSpent: '30000', totalEarned: '100000', totalPaidOut: '0' });
  expect(await costs()).toMatchObject([{ accrued: '1000', nextChargeAt: day(90).toISOString() }]);
  // Two periods that are charged late, after less is kept, cost what they would have cost at their time.
  await holds(130, 0);
  await heard(0);
  await walletOn(151, 0);
  const { entries } = await ledger.client.listEntries({ account: `app:${app}`, after: '0', limit: 10 }, call());
  expect(entries.map(({ kind, amount, ref }) => [kind, amount, ref])).toEqual([
    ['income', '100000', ''],
    ['retention', '30000', 'notes/1/2'],
    ['retention', '30000', 'notes/1/3'],
    ['retention', '30000', 'notes/1/4'],
    ['retention', '10000', 'notes/1/5'],
  ]);
});

test('what the balance cannot pay stays owed and is charged with the next period; what is locked is charged too', async () => {
  await earn(12_000);
  await finance.client.updatePayoutSettings({ appId: app, lockedBalance: '12000' }, call());
  await holds(0, GiB);
  await heard(GiB);
  expect(await walletOn(61, 0)).toMatchObject({ lockedBalance: '12000', totalSpent: '12000' });
  expect(await costs()).toMatchObject([{ accrued: '19000', sizeBytes: String(GiB) }]);
  await earn(100_000);
  await walletOn(91, 52_000);
  expect(await costs()).toMatchObject([{ accrued: '1000' }]);
});

test('the debt of a deleted collection is shown as one line and charged until it is paid', async () => {
  await holds(0, GiB);
  await deleted(75);
  finance.clock.now = day(95);
  await eventuallyResolves(async () =>
    expect(await costs()).toMatchObject([
      { collection: 'notes', accrued: '45000', sizeBytes: '0', monthlyCost: '0', nextChargeAt: day(120).toISOString() },
    ]),
  );
  await earn(50_000);
  await walletOn(121, 5_000);
  expect(await costs()).toEqual([]);
});

test('a pool of one connection is enough to apply events, to charge and to reconcile', async () => {
  await earn(100_000);
  await finance.restart({ DATABASE_POOL_SIZE: '1' });
  await holds(0, GiB);
  await heard(GiB);
  // Applied after the free days: its handler needs the prices within its transaction.
  await holds(61, 2 * GiB);
  await heard(2 * GiB);
  await walletOn(62, 70_000);
});
