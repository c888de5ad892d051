import { createPool, row, rows, type Pool } from '@granary/shared/postgres/pool';
import { sql } from '@granary/shared/postgres/sql';
import { seededRandom } from '@granary/testing/random';
import { seedOf } from '@granary/testing/seeds';
import { size, sizedLimitMs } from '@granary/testing/size';
import { limitMs } from '@granary/testing/speed';
import { startPostgresProxy, type CommitFate, type PostgresProxy } from '@granary/testing/postgres-proxy';
import { retriedTransaction } from '@granary/shared/postgres/transaction';
import { applyCommands } from '../src/ledger/apply-commands';
import { walletAccount } from '../src/ledger/kinds';
import { transferId } from '@granary/shared/money/transfer-id';
import { advancePayouts } from '../src/payouts/payout-task';
import type { Payout } from '../src/payouts/payouts';
import { reservePayouts } from '../src/payouts/reserve-payouts';
import type { PayoutSigning } from '../src/payouts/sign-payouts';
import { verifyLedger } from '../src/reconciliation/verify-ledger';
import { feeCollector } from '../src/chain/module-accounts';
import { getWallet } from '../src/wallets/wallet';
import { financePool, log } from './support/harness';
import { crashing, newAddress, openPayoutBench, type PayoutBench } from './support/payout-copies';

const payoutCount = size({ run: 2_000, long: 500_000 });
/**
 * To an address that the chain refuses. Up to 99 others share the transaction of each, and are then paid one by one:
 * most of the cost.
 */
const blockedCount = Math.min(3, Math.ceil(payoutCount / 2_000));
const appCount = 100;
const perBatch = 100;
const amountMax = 1_000_000;
const seed = seedOf('finance/payout-histories');
const random = seededRandom(seed);
const below = (limit: number) => Math.floor(random() * limit);

let pool: Pool;
let other: Pool;
let proxy: PostgresProxy;
let bench: PayoutBench;
beforeAll(async () => {
  const made = await financePool(4);
  pool = made.pool;
  proxy = await startPostgresProxy(made.url, fateOfCommit);
  other = createPool({ url: proxy.url, size: 4, applicationName: 'copy', log });
  const faults = { loss: 0.1, eviction: 0.1, delayBlocks: 3, answerLoss: 0.1, indexLagBlocks: 4 };
  bench = await openPayoutBench(pool, faults, random);
});
afterAll(async () => {
  await Promise.all([pool.end(), other.end()]);
  await proxy.stop();
});

/** The connection of one of the copies is cut now and then when it commits: it cannot know whether it has. */
function fateOfCommit(): CommitFate {
  const fate = random();
  if (fate < 0.01) return 'cut before';
  return fate < 0.02 ? 'cut after' : 'pass';
}

/** Gives each application all that it will pay out. */
async function openWallets(): Promise<string[]> {
  const apps = Array.from({ length: appCount }, (_, at) => `app${at}`);
  for (const app of apps) await getWallet(bench.wallets, app);
  const amount = BigInt(payoutCount) * BigInt(amountMax);
  const gifts = apps.map((app) => [
    {
      type: 'transfer' as const,
      id: transferId(new Date(0), 'deposit', app),
      kind: 'deposit',
      ref: '',
      debitAccount: bench.chainAccount,
      creditAccount: walletAccount(app),
      amount,
    },
  ]);
  await applyCommands(pool, gifts);
  await bench.node.fund(bench.options.sender, amount);
  return apps;
}

/** Starts payouts to addresses that get nothing else, a few of them to one that the chain refuses. */
async function reserve(apps: readonly string[], blocked: ReadonlySet<number>, from: number): Promise<Payout[]> {
  const requests = Array.from({ length: perBatch }, (_, at) => ({
    appId: apps[below(apps.length)]!,
    trigger: 'manual' as const,
    amount: BigInt(1_000 + below(amountMax - 1_000)),
    destination: blocked.has(from + at) ? feeCollector('celestia') : newAddress(),
  }));
  const rules = { floorUtia: 1_000n, chainAccount: bench.chainAccount };
  return (await retriedTransaction(pool, (tx) => reservePayouts(tx, requests, rules))) as Payout[];
}

const isUnfinished = async () =>
  (await row(pool, sql`select from payout where status in ('pending', 'broadcast') limit 1`)) !== undefined;

test(
  `${payoutCount} payouts of the seed ${seed} by two processes that crash, of which one is cut off at COMMIT, on a chain that loses, delays and evicts: none twice, none stuck`,
  async () => {
    const apps = await openWallets();
    const blocked = new Set(Array.from({ length: blockedCount }, () => below(payoutCount)));
    const payouts: Payout[] = [];
    const copies: PayoutSigning[] = [pool, other].map((each) => ({
      ...bench.options,
      pool: each,
      chain: crashing(bench.node, 0.05, random),
    }));
    let blocks = 0;
    while (payouts.length < payoutCount || (await isUnfinished())) {
      if (payouts.length < payoutCount) payouts.push(...(await reserve(apps, blocked, payouts.length)));
      await Promise.allSettled(copies.map((copy) => advancePayouts(copy)));
      if (random() < 0.5) {
        blocks += 1;
        await bench.node.produceBlock();
      }
      if (blocks > payoutCount) throw new Error(`payouts are stuck; seed ${seed}`);
    }
    expect({ seed, ...(await outcome(payouts)) }).toEqual({
      seed,
      confirmed: payoutCount - blocked.size,
      failed: blocked.size,
      wronglyPaid: [],
      gaps: [],
      held: 0n,
      openHolds: 0n,
      differences: [],
    });
    const attempts = (await row<{ expired: bigint; included: bigint }>(
      pool,
      sql`select count(*) filter (where state = 'expired') as expired,
               count(*) filter (where state in ('confirmed', 'failed')) as included from outgoing_transaction`,
    ))!;
    // Otherwise nothing was proved.
    expect(attempts.expired).toBeGreaterThan(0n);
    const account = await bench.node.account(bench.options.sender);
    expect(account!.sequence).toBe(attempts.included);
  },
  sizedLimitMs(limitMs(600_000)),
);

/** What became of the payouts, by the chain and by the ledger. */
async function outcome(payouts: readonly Payout[]) {
  const stored = await rows<{ id: string; status: string }>(pool, sql`select id, status from payout`);
  const statuses = new Map(stored.map(({ id, status }) => [id, status]));
  const received = await rows<{ recipient: string; count: bigint; amount: string }>(
    pool,
    sql`select recipient, count(*), sum(amount)::text as amount from simulated_transfer
        where sender = ${bench.options.sender} group by recipient`,
  );
  const paid = new Map(received.map(({ recipient, count, amount }) => [recipient, `${count} × ${amount}`]));
  const wronglyPaid = payouts.filter(({ id, destination, amountUtia }) => {
    const expected = statuses.get(id) === 'confirmed' ? `1 × ${amountUtia}` : undefined;
    return paid.get(destination) !== expected;
  });
  const sequences = await rows<{ sequence: bigint }>(
    pool,
    sql`select sequence from outgoing_transaction where state <> 'expired' order by sequence`,
  );
  const { differences } = await verifyLedger(pool, () => undefined);
  const counts = await row<{ held: bigint; openHolds: bigint }>(
    pool,
    sql`select (select count(*) from outgoing_transaction where state = 'held') as held,
               (select count(*) from open_hold) as "openHolds"`,
  );
  return {
    confirmed: stored.filter(({ status }) => status === 'confirmed').length,
    failed: stored.filter(({ status }) => status === 'failed').length,
    wronglyPaid,
    gaps: sequences.filter(({ sequence }, at) => sequence !== BigInt(at)),
    ...counts!,
    differences,
  };
}
