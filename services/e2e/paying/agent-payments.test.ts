import { randomBytes, randomUUID } from 'node:crypto';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { financeConfig } from '@granary/finance/config';
import { postTransfer } from '../../finance/test/support/ledger';
import { financeDefinition, ledgerDefinition, startFinance } from '@granary/finance/service';
import { paymentsConfig } from '@granary/payments/config';
import { paymentsDefinition, startPayments } from '@granary/payments/service';
import { readConfig } from '@granary/shared/config';
import type { FinanceDefinition } from '@granary/shared/gen/granary/finance/v1/Finance';
import type { LedgerDefinition } from '@granary/shared/gen/granary/finance/v1/Ledger';
import type { PaymentsDefinition } from '@granary/shared/gen/granary/payments/v1/Payments';
import type { ReserveSpendRequest } from '@granary/shared/gen/granary/payments/v1/ReserveSpendRequest';
import { openClient, targetOf, type Target } from '@granary/shared/grpc/client';
import { createLogger } from '@granary/shared/logger';
import { createPool, row, type Pool } from '@granary/shared/postgres/pool';
import { sql } from '@granary/shared/postgres/sql';
import { newCall, type Client } from '@granary/shared/rpc/types';
import { stopAll } from '@granary/shared/service/lifecycle';
import { testDatabase } from '@granary/testing/database';
import { eventually } from '@granary/testing/eventually';
import { limitMs, waitMs } from '@granary/testing/speed';
import { transferId } from '@granary/shared/money/transfer-id';

const log = createLogger('test', 'silent');
const stops: Array<() => Promise<void>> = [];
const price = 1_001n;
/** Nothing that is reserved for so long expires during a test, however slow the machine is. */
const hourMs = 3_600_000;
const nowhere = { address: '127.0.0.1:1' };

let pool: Pool;
let finance: Client<FinanceDefinition>;
let payments: Client<PaymentsDefinition>;
/** Errors that the ledger answers with, after it has applied what it was asked. */
let lostAnswers = 0;

beforeAll(async () => {
  const directory = await mkdtemp(join(tmpdir(), 'granary-spending-'));
  stops.push(() => rm(directory, { recursive: true, force: true }));
  const { url } = await testDatabase();
  pool = createPool({ url, size: 2, applicationName: 'test', log });
  stops.push(() => pool.end());
  const common = { INTERNAL_SECRET: 'a secret that the services share with each other' };
  const keyFile = { KEY_FILE: join(directory, 'seed'), KEY_FILE_CREATE: 'true' };
  const ofFinance = readConfig(financeConfig, { ...common, ...keyFile, DATABASE_URL: url });
  const without = { paymentsOutbox: nowhere, dataOutbox: nowhere, blobsOutbox: nowhere };
  const running = await startFinance(ofFinance, { log, listen: false, ...without });
  stops.push(() => running.stop());
  const target = targetOf(running, ledgerDefinition) as Extract<Target<LedgerDefinition>, { implementation: object }>;
  const { implementation } = target;
  const { apply } = implementation.handlers;
  implementation.handlers.apply = async (request, call) => {
    const response = await apply(request, call);
    if (lostAnswers === 0) return response;
    lostAnswers -= 1;
    throw new Error('the answer is lost');
  };
  const ofPayments = readConfig(paymentsConfig, {
    ...common,
    DATABASE_URL: (await testDatabase()).url,
    AGENT_RESERVATION_MS: String(waitMs(2_000)),
  });
  const spending = await startPayments(ofPayments, { log, listen: false, ledger: () => target, data: () => nowhere });
  stops.push(() => spending.stop());
  finance = openClient(financeDefinition, targetOf(running, financeDefinition), { log }).client;
  payments = openClient(paymentsDefinition, targetOf(spending, paymentsDefinition), { log }).client;
});
afterAll(() => stopAll(stops));

const call = () => newCall('test', limitMs(10_000));
const wallet = async (appId: string) => {
  const { balance, totalSpent, totalEarned } = await finance.getWallet({ appId }, call());
  return { balance, totalSpent, totalEarned };
};
const openHolds = async () => (await row<{ count: bigint }>(pool, sql`select count(*) from open_hold`))!.count;

async function newPayer(amount: bigint): Promise<string> {
  const appId = `payer-${randomUUID()}`;
  await finance.getWallet({ appId }, call());
  await pool.query(
    `insert into account (id, unit, may_overdraw) values ('chain:test', 'utia', true) on conflict do nothing`,
  );
  await postTransfer(pool, {
    id: transferId(new Date(), 'deposit', appId),
    kind: 'deposit',
    ref: '',
    debitAccount: 'chain:test',
    creditAccount: `app:${appId}`,
    amount,
  });
  return appId;
}

const requestOf = (payerAppId: string, targetAppId: string): ReserveSpendRequest => ({
  paymentId: randomUUID(),
  atMs: String(Date.now()),
  payerAppId,
  targetAppId,
  keyId: `key-${payerAppId}`,
  limits: { allowedTargetApps: [], anyTarget: true, spendAllowance: '5000' },
  amountsUtia: [price.toString()],
  lastsMs: hourMs,
});

test('each call may be repeated whose answer was lost: nothing is reserved or paid twice', async () => {
  const [payer, target] = [await newPayer(10_000n), `target-${randomUUID()}`];
  const request = requestOf(payer, target);
  const repeated = async <T>(send: () => Promise<T>): Promise<T> => {
    lostAnswers = 1;
    await expect(send()).rejects.toMatchObject({ code: 'INTERNAL' });
    await send();
    return send();
  };
  // The answer to the credit of the allowance is lost first, then that to the holds.
  lostAnswers = 1;
  await expect(payments.reserveSpend(request, call())).rejects.toMatchObject({ code: 'INTERNAL' });
  expect(await openHolds()).toBe(0n);
  const reservation = await repeated(() => payments.reserveSpend(request, call()));
  expect([await openHolds(), (await wallet(payer)).balance]).toEqual([3n, '8999']);
  await repeated(() => payments.completeSpend({ reservation, amountsUtia: [price.toString()] }, call()));
  expect(await openHolds()).toBe(0n);
  expect(await wallet(payer)).toEqual({ balance: '8999', totalSpent: '1001', totalEarned: '10000' });
  expect(await wallet(target)).toMatchObject({ balance: '800', totalEarned: '800' });
  // What is paid cannot be cancelled, and what is cancelled cannot be paid.
  await payments.cancelSpend(reservation, call());
  const second = await payments.reserveSpend(requestOf(payer, target), call());
  await repeated(() => payments.cancelSpend(second, call()));
  await expect(
    payments.completeSpend({ reservation: second, amountsUtia: [price.toString()] }, call()),
  ).rejects.toMatchObject({ code: 'UNAVAILABLE' });
  expect(await wallet(payer)).toMatchObject({ balance: '8999', totalSpent: '1001' });
  expect(await openHolds()).toBe(0n);
});

test('a payment of a request that may be repeated is made once, whichever step its process ends in', async () => {
  const [payer, target] = [await newPayer(10_000n), `target-${randomUUID()}`];
  const repeats = { identifier: randomBytes(32), requestHash: randomBytes(32) };
  const newRequest = () => ({ ...requestOf(payer, target), repeats });
  const answer = Buffer.from('the page');
  const amountsUtia = [price.toString()];
  // The process ends after the money has moved, before that is noted, and cancels what it can.
  const reservation = await payments.reserveSpend(newRequest(), call());
  lostAnswers = 1;
  await expect(payments.completeSpend({ reservation, amountsUtia, answer }, call())).rejects.toMatchObject({
    code: 'INTERNAL',
  });
  await payments.cancelSpend(reservation, call());
  const repeated = await payments.reserveSpend(newRequest(), call());
  expect(repeated).toMatchObject({ isPaid: true, answer });
  expect(await wallet(payer)).toMatchObject({ balance: '8999', totalSpent: '1001' });
  expect(await openHolds()).toBe(0n);
  const other = { ...newRequest(), repeats: { ...repeats, requestHash: randomBytes(32) } };
  await expect(payments.reserveSpend(other, call())).rejects.toMatchObject({ reason: 'IDEMPOTENCY_KEY_REUSED' });
});

test('a request that may be repeated is made anew once the first has been cancelled, or its process has ended', async () => {
  const [payer, target] = [await newPayer(10_000n), `target-${randomUUID()}`];
  const repeats = { identifier: randomBytes(32), requestHash: randomBytes(32) };
  const newRequest = () => ({ ...requestOf(payer, target), repeats, lastsMs: 0 });
  const first = await payments.reserveSpend(newRequest(), call());
  await expect(payments.reserveSpend(newRequest(), call())).rejects.toMatchObject({ reason: 'REQUEST_IN_PROGRESS' });
  await payments.cancelSpend(first, call());
  const second = await payments.reserveSpend(newRequest(), call());
  expect(second.isPaid).toBeUndefined();
  // It is neither completed nor cancelled: its row is free a while after the hold has expired.
  const third = await eventually(() => payments.reserveSpend(newRequest(), call()).catch(() => undefined), 60_000);
  await payments.completeSpend(
    { reservation: third, amountsUtia: [price.toString()], answer: Buffer.from('page') },
    call(),
  );
  // The hold of the second has expired, but finance voids such holds only every few seconds.
  await eventually(async () => (await openHolds()) === 0n);
  expect(await wallet(payer)).toMatchObject({ balance: '8999', totalSpent: '1001' });
});

test('what is neither completed nor cancelled is released when it expires, with the allowance, and cannot be paid any more', async () => {
  const [payer, target] = [await newPayer(2_000n), `target-${randomUUID()}`];
  const reservation = await payments.reserveSpend({ ...requestOf(payer, target), lastsMs: 0 }, call());
  const refused = payments.reserveSpend(requestOf(payer, target), call());
  await expect(refused).rejects.toMatchObject({
    reason: 'PAYMENT_REFUSED',
    details: { reason: 'insufficient_funds' },
  });
  await eventually(async () => (await openHolds()) === 0n);
  await expect(payments.completeSpend({ reservation, amountsUtia: [price.toString()] }, call())).rejects.toMatchObject({
    code: 'UNAVAILABLE',
  });
  expect(await wallet(payer)).toMatchObject({ balance: '2000', totalSpent: '0' });
  const again = await payments.reserveSpend(requestOf(payer, target), call());
  await payments.completeSpend({ reservation: again, amountsUtia: [price.toString()] }, call());
  expect(await wallet(payer)).toMatchObject({ balance: '999', totalSpent: '1001' });
});

test('a reservation lasts as long as is asked', async () => {
  const [payer, target] = [await newPayer(2_000n), `target-${randomUUID()}`];
  const at = Date.now();
  const reservation = await payments.reserveSpend({ ...requestOf(payer, target), lastsMs: hourMs }, call());
  const held = (await row<{ until: Date }>(pool, sql`select min(expires_at) as until from open_hold`))!;
  expect(held.until.getTime()).toBeGreaterThanOrEqual(at + hourMs);
  await payments.cancelSpend(reservation, call());
});

test('payments that share a reservation are paid as if each were by itself, and what is not completed is released', async () => {
  const [payer, target] = [await newPayer(100_000n), `target-${randomUUID()}`];
  const amountsUtia = ['1001', '1', '1', '999'];
  const reservation = await payments.reserveSpend({ ...requestOf(payer, target), amountsUtia }, call());
  expect((await wallet(payer)).balance).toBe(String(100_000 - 2_002));
  // The share of 1 utia is 0.
  await payments.completeSpend({ reservation, amountsUtia: ['1', '999'] }, call());
  expect(await wallet(payer)).toMatchObject({ balance: '99000', totalSpent: '1000' });
  expect(await wallet(target)).toMatchObject({ balance: '799' });
  const tiny = await payments.reserveSpend({ ...requestOf(payer, target), amountsUtia: ['5', '1'] }, call());
  await payments.completeSpend({ reservation: tiny, amountsUtia: ['1'] }, call());
  expect(await wallet(payer)).toMatchObject({ balance: '98999', totalSpent: '1001' });
  expect(await wallet(target)).toMatchObject({ balance: '799' });
  expect(await openHolds()).toBe(0n);
  // Of the allowance of 5,000, 3,999 are left.
  const refused = payments.reserveSpend({ ...requestOf(payer, target), amountsUtia: ['3999', '1'] }, call());
  await expect(refused).rejects.toMatchObject({ details: { reason: 'allowance_spent' } });
  await payments.reserveSpend({ ...requestOf(payer, target), amountsUtia: ['3998', '1'] }, call());
  const limits = { allowedTargetApps: [], anyTarget: true };
  const most = String(Number.MAX_SAFE_INTEGER);
  for (const amounts of [[most], [most, most]]) {
    const huge = payments.reserveSpend({ ...requestOf(payer, target), limits, amountsUtia: amounts }, call());
    await expect(huge).rejects.toMatchObject({ details: { reason: 'insufficient_funds' } });
  }
  for (const wrong of [[], Array<string>(1_001).fill('1')]) {
    const request = { ...requestOf(payer, target), amountsUtia: wrong };
    await expect(payments.reserveSpend(request, call())).rejects.toMatchObject({ code: 'INVALID_ARGUMENT' });
  }
});
