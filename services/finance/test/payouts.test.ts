import { randomUUID } from 'node:crypto';
import type { ServiceError } from '@granary/shared/errors';
import { execute } from '@granary/shared/postgres/pool';
import { sql } from '@granary/shared/postgres/sql';
import { bech32 } from '@scure/base';
import { call, startTestFinance, type TestFinance } from './support/harness';

let finance: TestFinance;
beforeAll(async () => {
  finance = await startTestFinance();
});
afterAll(() => finance.stop());

const newApp = () => `a${randomUUID().slice(0, 13)}`;
const destination = bech32.encode('celestia', bech32.toWords(new Uint8Array(20).fill(9)));

const update = async (appId: string, change: object) =>
  (await finance.client.updatePayoutSettings({ appId, ...change }, call())).settings;
const settings = async (appId: string) => (await finance.client.getPayoutInfo({ appId }, call())).settings!;

test('settings that were never made are off and zero, without a destination', async () => {
  expect(await settings(newApp())).toEqual({
    autoPayoutEnabled: false,
    lockedBalance: '0',
    minPayout: '0',
    payoutThreshold: '0',
  });
});

test('a field that is absent stays as it is', async () => {
  const app = newApp();
  const all = {
    autoPayoutEnabled: true,
    lockedBalance: '9007199254740991',
    minPayout: '10',
    payoutThreshold: '20',
    payoutDestination: destination,
  };
  expect(await update(app, all)).toEqual(all);
  expect(await update(app, {})).toEqual(all);
  expect(await update(app, { autoPayoutEnabled: false })).toEqual({ ...all, autoPayoutEnabled: false });
  expect(await update(app, { minPayout: '0' })).toEqual({ ...all, autoPayoutEnabled: false, minPayout: '0' });
  expect(await settings(app)).toEqual({ ...all, autoPayoutEnabled: false, minPayout: '0' });
});

test('a lower locked balance is refused and nothing changes, not even the other fields', async () => {
  const app = newApp();
  await update(app, { lockedBalance: '100' });
  const before = await settings(app);
  for (const lockedBalance of ['99', '0']) {
    await expect(update(app, { lockedBalance, minPayout: '5', payoutDestination: destination })).rejects.toMatchObject({
      code: 'ALREADY_EXISTS',
      reason: 'LOCKED_BALANCE_DECREASE',
    });
  }
  expect(await settings(app)).toEqual(before);
  await expect(update(app, { lockedBalance: '100', minPayout: '5' })).resolves.toMatchObject({ minPayout: '5' });
  // The database itself refuses too.
  await expect(
    finance.pool.query('update wallet set locked_balance = 99 where app_id = $1', [app]),
  ).rejects.toMatchObject({
    code: '23001',
  });
});

test('under 100 increases and decreases at once the locked balance never goes down', async () => {
  const app = newApp();
  const amounts = Array.from({ length: 100 }, (_, at) => (at * 37) % 101);
  let settled = false;
  const watched: bigint[] = [];
  const watch = async () => {
    while (!settled) watched.push(BigInt((await settings(app)).lockedBalance));
  };
  const watching = watch();
  const results = await Promise.allSettled(amounts.map((amount) => update(app, { lockedBalance: String(amount) })));
  settled = true;
  await watching;
  const accepted = amounts.filter((_, at) => results[at]!.status === 'fulfilled');
  for (const result of results) {
    if (result.status === 'rejected') expect((result.reason as ServiceError).reason).toBe('LOCKED_BALANCE_DECREASE');
  }
  expect(accepted).toContain(Math.max(...amounts));
  expect((await settings(app)).lockedBalance).toBe(String(Math.max(...amounts)));
  expect(watched).toEqual([...watched].sort((a, b) => (a < b ? -1 : a > b ? 1 : 0)));
});

test('amounts that are none and destinations that are none are named in the error', async () => {
  const app = newApp();
  const wrong: Array<[object, string[]]> = [
    [{ lockedBalance: '-1' }, ['locked_balance']],
    [{ minPayout: '9007199254740992' }, ['min_payout']],
    [{ payoutThreshold: '-9', minPayout: '-9' }, ['min_payout', 'payout_threshold']],
    [{ payoutDestination: '' }, ['payout_destination']],
    [{ payoutDestination: destination.replace('celestia', 'cosmos') }, ['payout_destination']],
    [{ payoutDestination: `${destination}q` }, ['payout_destination']],
  ];
  for (const [change, fields] of wrong) {
    const error = (await update(app, change).catch((reason: unknown) => reason)) as ServiceError;
    expect([error.code, Object.keys(error.details).sort()]).toEqual(['INVALID_ARGUMENT', fields]);
    for (const messages of Object.values(error.details)) expect(messages).toEqual([expect.any(String)]);
  }
});

test('the history has the newest payout first, by status, and a total that counts past the page', async () => {
  const app = newApp();
  await settings(app);
  const list = (request: object) =>
    finance.client.listPayouts({ appId: app, limit: 10, offset: 0, status: '', ...request }, call());
  expect(await list({})).toEqual({ payouts: [], total: '0' });

  const statuses = ['pending', 'broadcast', 'confirmed', 'failed', 'confirmed'];
  for (const [at, status] of statuses.entries()) {
    await execute(
      finance.pool,
      sql`insert into payout (id, app_id, amount, destination, trigger, status, tx_hash, error, created_at, updated_at)
          values (${randomUUID()}, ${app}, ${at + 1}, ${destination}, 'manual', ${status},
                  ${status === 'confirmed' ? 'AB' : null}, ${status === 'failed' ? 'why' : null},
                  ${new Date(Date.UTC(2026, 0, at + 1))}, ${new Date(Date.UTC(2026, 1, at + 1))})`,
    );
  }
  const all = await list({});
  expect(all.total).toBe('5');
  expect(all.payouts.map((payout) => payout.amount)).toEqual(['5', '4', '3', '2', '1']);
  expect(all.payouts[1]).toEqual({
    payoutId: expect.any(String) as string,
    amount: '4',
    destination,
    trigger: 'manual',
    status: 'failed',
    error: 'why',
    createdAt: '2026-01-04T00:00:00.000Z',
    updatedAt: '2026-02-04T00:00:00.000Z',
  });
  expect(all.payouts[0]).toMatchObject({ txHash: 'AB' });
  const page = await list({ limit: 2, offset: 3 });
  expect([page.total, ...page.payouts.map((payout) => payout.amount)]).toEqual(['5', '2', '1']);
  expect(await list({ offset: 9 })).toEqual({ payouts: [], total: '5' });
  expect(await list({ limit: 0 })).toEqual({ payouts: [], total: '5' });
  const confirmed = await list({ status: 'confirmed', limit: 1 });
  expect([confirmed.total, ...confirmed.payouts.map((payout) => payout.amount)]).toEqual(['2', '5']);
  for (const request of [{ status: 'lost' }, { limit: -1 }, { limit: 10_001 }, { offset: -1 }]) {
    await expect(list(request)).rejects.toMatchObject({ code: 'INVALID_ARGUMENT' });
  }
  const other = await finance.client.listPayouts({ appId: newApp(), limit: 10, offset: 0, status: '' }, call());
  expect(other.total).toBe('0');
});

test('authz transactions are found by user and by application, newest first, each only their own', async () => {
  const [app, user] = [newApp(), `celestia1${randomUUID()}`];
  const list = (request: object) =>
    finance.client.listTransactions({ userAddress: '', appId: '', limit: 10, offset: 0, ...request }, call());
  expect(await list({ userAddress: user })).toEqual({ transactions: [], total: '0' });
  for (let at = 0; at < 4; at++) {
    await execute(
      finance.pool,
      sql`insert into authz_transaction (transaction_hash, user_address, app_id, operation_type, collection, amount, status, block_height, created_at)
          values (${`H${at}`}, ${at === 3 ? 'another' : user}, ${at === 2 ? 'another' : app}, 'write', 'notes',
                  9007199254740991, 'confirmed', ${at}, ${new Date(Date.UTC(2026, 0, 1, 0, 0, at < 2 ? 0 : at))})`,
    );
  }
  const hashes = (found: { transactions?: Array<{ transactionHash: string }> }) =>
    found.transactions!.map((each) => each.transactionHash);
  const byUser = await list({ userAddress: user });
  expect([byUser.total, ...hashes(byUser)]).toEqual(['3', 'H2', 'H1', 'H0']);
  const byApp = await list({ appId: app, limit: 2 });
  expect([byApp.total, ...hashes(byApp)]).toEqual(['3', 'H3', 'H1']);
  expect(byApp.transactions[1]).toEqual({
    transactionHash: 'H1',
    userAddress: user,
    appId: app,
    operationType: 'write',
    collection: 'notes',
    amount: '9007199254740991',
    status: 'confirmed',
    blockHeight: '1',
    createdAt: '2026-01-01T00:00:00.000Z',
  });
  expect(await list({ appId: app, offset: 5 })).toEqual({ transactions: [], total: '3' });
  for (const request of [{}, { userAddress: user, appId: app }, { appId: app, limit: -1 }]) {
    await expect(list(request)).rejects.toMatchObject({ code: 'INVALID_ARGUMENT' });
  }
});
