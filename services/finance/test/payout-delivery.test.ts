import { busMigrations } from '@granary/shared/bus/migrations';
import { applyMigrations } from '@granary/shared/postgres/migrate';
import { execute, row, rows, type Pool } from '@granary/shared/postgres/pool';
import { sql } from '@granary/shared/postgres/sql';
import { eventually } from '@granary/testing/eventually';
import { transaction } from '@granary/shared/postgres/transaction';
import type { BroadcastResult, Chain } from '../src/chain/chain';
import { feeOf, gasLimit } from '../src/chain/fee';
import { signTransfer } from '../src/chain/sign-transfer';
import { postTransfer } from './support/ledger';
import { transferId } from '@granary/shared/money/transfer-id';
import { listHeld, releaseHeld, resumeSenders } from '../src/payouts/held-transactions';
import { advancePayouts, startPayouts } from '../src/payouts/payout-task';
import { readPayoutState } from '../src/payouts/sign-payouts';
import { reservePayouts } from '../src/payouts/reserve-payouts';
import type { Payout } from '../src/payouts/payouts';
import { verifyLedger } from '../src/reconciliation/verify-ledger';
import { feeCollector } from '../src/chain/module-accounts';
import { getWallet } from '../src/wallets/wallet';
import { financePool } from './support/harness';
import { gasPrice, newAddress, openPayoutBench, type PayoutBench } from './support/payout-copies';

const funds = 1_000_000n;
let pool: Pool;
let bench: PayoutBench;
beforeEach(async () => {
  pool = (await financePool(4)).pool;
  bench = await openPayoutBench(pool);
  await getWallet(bench.wallets, 'shop');
  const deposit = { id: transferId(new Date(0), 'deposit', 'shop'), kind: 'deposit', ref: '', amount: funds };
  await postTransfer(pool, { ...deposit, debitAccount: bench.chainAccount, creditAccount: 'app:shop' });
});
afterEach(async () => {
  expect((await verifyLedger(pool, () => undefined)).differences).toEqual([]);
  await pool.end();
});

const reserve = (count: number, destination = newAddress): Promise<Payout[]> =>
  transaction(pool, (tx) =>
    reservePayouts(
      tx,
      Array.from({ length: count }, () => ({
        appId: 'shop',
        trigger: 'manual' as const,
        amount: 1_000n,
        destination: destination(),
      })),
      { floorUtia: 1n, chainAccount: bench.chainAccount },
    ),
  ) as Promise<Payout[]>;
const fundHotWallet = () => bench.node.fund(bench.options.sender, funds);
const advance = (chain: Chain = bench.node) => advancePayouts({ ...bench.options, chain });
/** Steps and blocks until nothing is left that could be done. */
async function settle(chain?: Chain): Promise<void> {
  for (let round = 0; round < 40; round++) {
    await advance(chain);
    await bench.node.produceBlock();
  }
}
const statuses = async () =>
  (await rows<{ status: string }>(pool, sql`select status from payout order by created_at, id`)).map(
    ({ status }) => status,
  );
const attempts = () =>
  rows<{ state: string; sequence: bigint; payouts: bigint }>(
    pool,
    sql`select state, sequence, (select count(*) from payout_attempt where transaction_number = number) as payouts
        from outgoing_transaction order by number`,
  );
const answering = (result: BroadcastResult): Chain =>
  Object.assign(Object.create(bench.node) as Chain, { broadcast: () => Promise.resolve(result) });

test('bytes, hash, sequence and timeout height are committed before the first send', async () => {
  await fundHotWallet();
  await reserve(1);
  const seen: unknown[] = [];
  const watching = Object.assign(Object.create(bench.node) as Chain, {
    broadcast: async (bytes: Uint8Array) => {
      seen.push(await row(pool, sql`select state from outgoing_transaction where bytes = ${Buffer.from(bytes)}`));
      return bench.node.broadcast(bytes);
    },
  });
  await settle(watching);
  expect(seen).toEqual([{ state: 'signed' }]);
  expect(await statuses()).toEqual(['confirmed']);
});

test('one transaction is in flight, with at most 100 payouts, those first that have waited longest', async () => {
  await fundHotWallet();
  await reserve(250);
  await advance();
  await advance();
  expect(await attempts()).toEqual([{ state: 'broadcast', sequence: 0n, payouts: 100n }]);
  await settle();
  expect((await attempts()).map(({ payouts }) => payouts)).toEqual([100n, 100n, 50n]);
  expect(new Set(await statuses())).toEqual(new Set(['confirmed']));
});

test('of a transaction that fails each payout is retried singly, and only the one at fault fails; its amount is free again', async () => {
  await fundHotWallet();
  let at = 0;
  const [, , refused] = await reserve(4, () => (at++ === 2 ? feeCollector('celestia') : newAddress()));
  await settle();
  expect((await attempts()).map(({ state, payouts }) => [state, payouts])).toEqual(
    expect.arrayContaining([
      ['failed', 4n],
      ['failed', 1n],
      ['confirmed', 1n],
    ]),
  );
  expect((await statuses()).sort()).toEqual(['confirmed', 'confirmed', 'confirmed', 'failed']);
  const failed = await row(
    pool,
    sql`select id, error, tx_hash is not null as sent from payout where status = 'failed'`,
  );
  expect(failed).toEqual({ id: refused!.id, error: 'the chain refused it with code 4', sent: true });
  expect(await getWallet(bench.wallets, 'shop')).toMatchObject({
    balance: funds - 3_000n,
    pendingPayouts: 0n,
    totalPaidOut: 3_000n,
    totalSpent: 0n,
  });
});

test('a refusal that ought not to be holds the transaction for a person: nothing is sent again, and it ends if a block has it', async () => {
  await fundHotWallet();
  const [payout] = await reserve(1);
  await advance();
  await advance(answering({ state: 'refused', codespace: 'sdk', code: 13 }));
  expect(await readPayoutState(pool)).toMatchObject({ held: 1n });
  const held = { status: 'pending', error: 'waits for the operator' };
  expect(await row(pool, sql`select status, error from payout where id = ${payout!.id}`)).toEqual(held);
  await reserve(1);
  await settle();
  expect((await attempts()).map(({ state }) => state)).toEqual(['held']);
  expect(await bench.node.account(bench.options.sender)).toMatchObject({ sequence: 0n });
  // Its timeout height has passed, so a copy with a later one stands for a block that had it all along.
  await execute(
    pool,
    sql`insert into simulated_transaction (hash, height, code) select hash, 5, 0 from outgoing_transaction`,
  );
  await execute(pool, sql`update simulated_account set sequence = 1 where address = ${bench.options.sender}`);
  await settle();
  expect(await statuses()).toEqual(['confirmed', 'confirmed']);
  expect(await readPayoutState(pool)).toMatchObject({ held: 0n, oldestAgeSeconds: null });
});

test('a full mempool and a node that says nothing definite change nothing; the same bytes are sent again', async () => {
  await fundHotWallet();
  await reserve(1);
  await advance();
  expect(await advance(answering({ state: 'later' }))).toBe('waiting');
  const { hash } = (await row<{ hash: string }>(pool, sql`select hash from outgoing_transaction`))!;
  await settle();
  expect(await row(pool, sql`select hash, state from outgoing_transaction`)).toEqual({ hash, state: 'confirmed' });
});

test('a transaction that somebody else signed with the key stops payouts until a person resumes them', async () => {
  await fundHotWallet();
  await reserve(1);
  await settle();
  const { sender, keys } = bench.options;
  const account = (await bench.node.account(sender))!;
  const { bytes } = await signTransfer(keys, 'hot', {
    chainId: bench.node.id,
    accountNumber: account.number,
    sequence: account.sequence,
    sender,
    denom: 'utia',
    outputs: [{ address: newAddress(), amount: 5n }],
    memo: '',
    timeoutHeight: account.height + 9n,
    fee: { amount: feeOf(gasLimit(1), gasPrice), gas: gasLimit(1) },
  });
  expect(await bench.node.broadcast(bytes)).toEqual({ state: 'accepted' });
  await bench.node.produceBlock();
  await reserve(1);
  await settle();
  expect(await statuses()).toEqual(['confirmed', 'pending']);
  expect((await readPayoutState(pool)).stoppedBecause).toMatch(/not sent from here/);
  expect(await resumeSenders(pool)).toBe(1);
  await settle();
  expect(await statuses()).toEqual(['confirmed', 'confirmed']);
  expect((await attempts()).map(({ sequence }) => sequence)).toEqual([0n, 2n]);
});

test('a sequence that another transaction used while ours was in flight holds ours, and it is not signed again', async () => {
  await fundHotWallet();
  await reserve(1);
  await advance();
  await advance(answering({ state: 'accepted' }));
  await execute(pool, sql`update simulated_account set sequence = 1 where address = ${bench.options.sender}`);
  for (let block = 0; block < 60; block++) {
    await advance();
    await bench.node.produceBlock();
  }
  expect((await attempts()).map(({ state }) => state)).toEqual(['held']);
  // A person has made sure that no block has it.
  const [held] = await listHeld(pool);
  expect(held).toMatchObject({
    kind: 'payouts',
    count: 1n,
    amount: 1_000n,
    error: expect.stringMatching(/sequence/) as string,
  });
  await releaseHeld(pool, held!.hash);
  await settle();
  expect((await attempts()).map(({ state, sequence }) => [state, sequence])).toEqual([
    ['expired', 0n],
    ['confirmed', 1n],
  ]);
  expect(await statuses()).toEqual(['confirmed']);
});

test('a node that has not reached the timeout height does not decide that a transaction has expired', async () => {
  await fundHotWallet();
  await reserve(1);
  await advance();
  await advance();
  await bench.node.produceBlock();
  // One node has not indexed the block that has it, and the account is asked of another one, which lags behind.
  const { timeout } = (await row<{ timeout: bigint }>(
    pool,
    sql`select timeout_height as timeout from outgoing_transaction`,
  ))!;
  const lagging = Object.assign(Object.create(bench.node) as Chain, {
    find: async () => ({ state: 'absent', ...(await bench.node.height()) }),
    account: async (address: string) => ({
      ...(await bench.node.account(address))!,
      sequence: 0n,
      height: timeout,
    }),
  });
  for (let round = 0; round < 15; round++) {
    await advance(lagging);
    await bench.node.produceBlock();
  }
  expect((await attempts()).map(({ state }) => state)).toEqual(['broadcast']);
  await settle();
  expect((await attempts()).map(({ state }) => state)).toEqual(['confirmed']);
});

test('nothing is signed on the word of a node that lags behind what was sent before', async () => {
  await fundHotWallet();
  await reserve(1);
  await settle();
  await reserve(1);
  const lagging = Object.assign(Object.create(bench.node) as Chain, {
    account: async (address: string) => ({ ...(await bench.node.account(address))!, sequence: 0n }),
  });
  expect(await advance(lagging)).toBe('idle');
  expect(await attempts()).toHaveLength(1);
  await settle();
  expect(await statuses()).toEqual(['confirmed', 'confirmed']);
});

test('looks at one height count as one: a transaction expires after two in different blocks', async () => {
  await fundHotWallet();
  await reserve(1);
  await advance();
  await advance(answering({ state: 'accepted' }));
  for (let block = 0; block < 8; block++) await bench.node.produceBlock();
  for (let look = 0; look < 3; look++) expect(await advance()).toBe('waiting');
  expect((await attempts()).map(({ state }) => state)).toEqual(['broadcast']);
  await bench.node.produceBlock();
  expect(await advance()).toBe('progress');
  expect((await attempts()).map(({ state }) => state)).toEqual(['expired']);
});

test('a held transaction is not given up as long as a block could include it', async () => {
  await fundHotWallet();
  await reserve(1);
  await advance();
  await advance(answering({ state: 'refused', codespace: 'sdk', code: 13 }));
  const [held] = await listHeld(pool);
  await advance();
  await expect(releaseHeld(pool, held!.hash)).rejects.toThrow(/could still include it/);
  await expect(releaseHeld(pool, 'AB')).rejects.toThrow(/No transaction/);
  await settle();
  await releaseHeld(pool, held!.hash);
  await settle();
  expect((await attempts()).map(({ state }) => state)).toEqual(['expired', 'confirmed']);
});

test('without funds for the next payout nothing is signed and health knows what is missing; with them it is paid', async () => {
  await reserve(1);
  await settle();
  expect(await attempts()).toEqual([]);
  expect((await readPayoutState(pool)).missing).toBe(1_000n + feeOf(gasLimit(1), gasPrice));
  await fundHotWallet();
  await settle();
  expect(await statuses()).toEqual(['confirmed']);
  expect((await readPayoutState(pool)).missing).toBeNull();
});

test.each([
  ['a refusal in a block', { code: 5, included: true }],
  ['a refusal by a node', { code: 5, included: false }],
])('%s with a code of another module than the SDK is not taken for a lack of funds', async (_, { code, included }) => {
  const codespace = 'bank';
  await fundHotWallet();
  await reserve(1);
  if (!included) {
    await advance();
    await advance(answering({ state: 'refused', codespace, code }));
    expect(await readPayoutState(pool)).toMatchObject({ held: 1n });
    return;
  }
  await settle(
    Object.assign(Object.create(bench.node) as Chain, {
      find: async (hash: string) => {
        const found = await bench.node.find(hash);
        return found.state === 'included' ? { ...found, code, codespace } : found;
      },
    }),
  );
  expect((await attempts()).map(({ state }) => state)).toEqual(['failed']);
  expect(await statuses()).toEqual(['failed']);
});

test('a transaction that is held or under way does not keep automatic payouts from being started', async () => {
  await applyMigrations(pool, 'bus', busMigrations);
  await fundHotWallet();
  await reserve(1);
  const task = startPayouts({
    ...bench.options,
    chain: answering({ state: 'refused', codespace: 'sdk', code: 13 }),
    auto: { pool, rules: { floorUtia: 1n, chainAccount: bench.chainAccount }, intervalMs: 3_600_000 },
    everyMs: 5,
    autoEveryMs: 5,
  });
  await eventually(async () => (await readPayoutState(pool)).held === 1n);
  await execute(pool, sql`update wallet set auto_payout_enabled = true, payout_destination = ${newAddress()}`);
  await eventually(async () => (await rows(pool, sql`select from payout where trigger = 'auto'`)).length === 1);
  await task.stop();
});

test('health looks at the senders with a problem only, not at every address that was ever swept', async () => {
  await execute(
    pool,
    sql`insert into chain_sender (address, next_sequence, stopped_because)
        select 'address ' || n, 1, case when n = 7 then 'stopped' end from generate_series(1, 20000) n`,
  );
  await pool.query('analyze chain_sender');
  expect(await readPayoutState(pool)).toMatchObject({ stoppedBecause: 'stopped', missing: null });
  // Postgres adds up its figures with some delay.
  await eventually(async () => {
    const found = await row<{ scans: bigint }>(
      pool,
      sql`select idx_scan as scans from pg_stat_user_indexes where indexrelname = 'chain_sender_problems'`,
    );
    return found!.scans >= 2n;
  });
  const read = await row(pool, sql`select seq_tup_read from pg_stat_user_tables where relname = 'chain_sender'`);
  expect(read).toEqual({ seq_tup_read: 0n });
});

test('while payouts are paused nothing is signed', async () => {
  await fundHotWallet();
  await reserve(1);
  await execute(pool, sql`insert into difference (kind, subject, expected, found) values ('unit', 'utia', '0', '1')`);
  await settle();
  expect(await attempts()).toEqual([]);
  await execute(pool, sql`update difference set resolved_at = now()`);
  await settle();
  expect(await statuses()).toEqual(['confirmed']);
});
