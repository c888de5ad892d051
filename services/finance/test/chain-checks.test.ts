import { execute, rows, type Pool } from '@granary/shared/postgres/pool';
import { sql } from '@granary/shared/postgres/sql';
import { transaction } from '@granary/shared/postgres/transaction';
import { beginWatch, creditDeposits } from '../src/deposits/credit-deposits';
import { Sweeps } from '../src/deposits/sweep';
import { feeOf, gasLimit } from '../src/chain/fee';
import { signTransfer } from '../src/chain/sign-transfer';
import { advancePayouts } from '../src/payouts/payout-task';
import { reservePayouts } from '../src/payouts/reserve-payouts';
import { checkChain } from '../src/reconciliation/chain-checks';
import type { Difference } from '../src/reconciliation/differences';
import { getWallet } from '../src/wallets/wallet';
import { financePool, log } from './support/harness';
import { gasPrice, newAddress, openPayoutBench, type PayoutBench } from './support/payout-copies';

let pool: Pool;
let bench: PayoutBench;
beforeEach(async () => {
  pool = (await financePool(4)).pool;
  bench = await openPayoutBench(pool);
  await beginWatch({ pool, chain: bench.node });
  await bench.node.fund(bench.options.sender, 1_000_000n);
  await deposit(200_000n);
});
afterEach(() => pool.end());

const watch = () => ({ pool, chain: bench.node, chainAccount: bench.chainAccount, depthBlocks: 0, log });
async function deposit(amount: bigint): Promise<void> {
  const { address } = await getWallet(bench.wallets, 'shop');
  await bench.node.fund(address, amount);
  while (await creditDeposits(watch()));
}
async function pay(): Promise<void> {
  const requests = [1, 2].map(() => ({
    appId: 'shop',
    trigger: 'manual' as const,
    amount: 10_000n,
    destination: newAddress(),
  }));
  await transaction(pool, (tx) => reservePayouts(tx, requests, { floorUtia: 1n, chainAccount: bench.chainAccount }));
  for (let round = 0; round < 6; round++) {
    await advancePayouts(bench.options);
    await new Sweeps({ ...bench.options, hotWallet: bench.options.sender }).advance();
    await bench.node.produceBlock();
  }
}
const checked = async (): Promise<Difference[]> => {
  while (await creditDeposits(watch()));
  const found: Difference[] = [];
  for (let part; (part = await checkChain(pool, bench.node)) !== undefined;) found.push(...part);
  return found;
};

test('deposits, sweeps and payouts are on the chain as they are stored, also between their steps', async () => {
  expect(await checked()).toEqual([]);
  await pay();
  expect(await checked()).toEqual([]);
  await deposit(5n);
  await pay();
  expect(await checked()).toEqual([]);
  expect(await execute(pool, sql`select from outgoing_transaction where state = 'confirmed'`)).toBeGreaterThan(2);
});

test.each(['broadcast', 'held'] as const)(
  'blocks that may include a transaction that is %s are compared once it has ended',
  async (state) => {
    expect(await checked()).toEqual([]);
    const requests = [{ appId: 'shop', trigger: 'manual' as const, amount: 9_000n, destination: newAddress() }];
    await transaction(pool, (tx) => reservePayouts(tx, requests, { floorUtia: 1n, chainAccount: bench.chainAccount }));
    await advancePayouts(bench.options);
    await advancePayouts(bench.options);
    await bench.node.produceBlock();
    // A person decides about it, since nodes have said that they do not have it.
    if (state === 'held')
      await execute(pool, sql`update outgoing_transaction set state = 'held' where state = 'broadcast'`);
    expect(await execute(pool, sql`select from outgoing_transaction where state = ${state}`)).toBe(1);
    // A block has it, and that is not stored yet.
    expect(await checked()).toEqual([]);
    await advancePayouts(bench.options);
    const before = await rows(pool, sql`select checked_height from chain_watch`);
    expect(await checked()).toEqual([]);
    expect(await rows(pool, sql`select checked_height from chain_watch`)).not.toEqual(before);
  },
);

test('a payout that another hand has sent, one that is missing on the chain, and one of another amount are found', async () => {
  await pay();
  const { sender, keys } = bench.options;
  const account = (await bench.node.account(sender))!;
  const { bytes, hash } = await signTransfer(keys, 'hot', {
    chainId: bench.node.id,
    accountNumber: account.number,
    sequence: account.sequence,
    sender,
    denom: 'utia',
    outputs: [{ address: newAddress(), amount: 77n }],
    memo: '',
    timeoutHeight: account.height + 9n,
    fee: { amount: feeOf(gasLimit(1), gasPrice), gas: gasLimit(1) },
  });
  await bench.node.broadcast(bytes);
  await bench.node.produceBlock();
  const [first] = await rows<{ hash: string }>(
    pool,
    sql`select hash from outgoing_transaction where sender = ${sender} and state = 'confirmed' order by number`,
  );
  await execute(
    pool,
    sql`update simulated_transfer set amount = amount + 1 where hash = ${first!.hash} and event_index = 0`,
  );
  expect(await checked()).toEqual(
    expect.arrayContaining([
      { kind: 'outgoing', subject: hash, expected: 0n, found: 77n },
      { kind: 'outgoing', subject: first!.hash, expected: 20_000n, found: 20_001n },
    ]),
  );
  await pay();
});

test('a deposit that was missed, and one that is not on the chain, are found', async () => {
  await deposit(33n);
  await deposit(44n);
  const [missed] = await rows<{ subject: string }>(
    pool,
    sql`delete from deposit where amount = 33 returning transaction_hash || '/' || event_index as subject`,
  );
  await execute(pool, sql`update deposit set transaction_hash = 'FF' where amount = 44`);
  const found = await checked();
  expect(found).toEqual(
    expect.arrayContaining([
      { kind: 'deposit', subject: missed!.subject, expected: 33n, found: 0n },
      { kind: 'deposit', subject: 'FF/0', expected: 0n, found: 44n },
    ]),
  );
  expect(found).toHaveLength(3);
});
