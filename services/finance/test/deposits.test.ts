import { randomUUID } from 'node:crypto';
import { execute, row, rows, type Pool } from '@granary/shared/postgres/pool';
import { sql } from '@granary/shared/postgres/sql';
import type { Chain } from '../src/chain/chain';
import { feeCollector } from '../src/chain/module-accounts';
import { beginWatch, creditDeposits } from '../src/deposits/credit-deposits';
import { Sweeps, unsweptAfter } from '../src/deposits/sweep';
import { listStopped, releaseHeld, resumeSenders } from '../src/payouts/held-transactions';
import { checkChain } from '../src/reconciliation/chain-checks';
import { verifyLedger } from '../src/reconciliation/verify-ledger';
import { getWallet } from '../src/wallets/wallet';
import { financePool, log } from './support/harness';
import { crashing, openPayoutBench, type PayoutBench } from './support/payout-copies';
import { seededRandom } from '@granary/testing/random';
import { seedOf } from '@granary/testing/seeds';
import { size } from '@granary/testing/size';

let pool: Pool;
let bench: PayoutBench;
beforeEach(async () => {
  pool = (await financePool(4)).pool;
  bench = await openPayoutBench(pool);
  await beginWatch({ pool, chain: bench.node });
});
afterEach(async () => {
  expect((await verifyLedger(pool, () => undefined)).differences).toEqual([]);
  await pool.end();
});

const newApp = () => `a${randomUUID().slice(0, 8)}`;
const watch = (depthBlocks = 0, chain = bench.options.chain) => ({
  pool,
  chain,
  chainAccount: bench.chainAccount,
  depthBlocks,
  log,
});
const credited = async (depthBlocks = 0): Promise<string[]> => {
  const apps: string[] = [];
  for (let found; (found = await creditDeposits(watch(depthBlocks))) !== undefined;) apps.push(...found);
  return apps;
};
const walletOf = (app: string) => getWallet(bench.wallets, app);
const sweep = () => new Sweeps({ ...bench.options, hotWallet: bench.options.sender }).advance();

test('what arrives at a wallet is credited once, as earned, however often and by how many its blocks are read', async () => {
  const [app, other] = [newApp(), newApp()];
  const { address } = await walletOf(app);
  await bench.node.fund(address, 5_000n);
  await bench.node.fund((await walletOf(other)).address, 7n);
  await bench.node.fund(address, 600n);
  await bench.node.fund(bench.options.sender, 9_999n);
  const found = await Promise.all([credited(), credited(), credited()]);
  expect(new Set(found.flat())).toEqual(new Set([app, other]));
  expect(await credited()).toEqual([]);
  expect(await walletOf(app)).toMatchObject({ balance: 5_600n, totalEarned: 5_600n, available: 5_600n });
  expect(await walletOf(other)).toMatchObject({ balance: 7n });
  const deposits = await rows(pool, sql`select amount, sender from deposit where app_id = ${app} order by height`);
  expect(deposits).toEqual([
    { amount: 5_000n, sender: 'faucet' },
    { amount: 600n, sender: 'faucet' },
  ]);
});

test('a deposit counts once as many blocks have followed as is configured', async () => {
  const app = newApp();
  await bench.node.fund((await walletOf(app)).address, 50n);
  await bench.node.produceBlock();
  await bench.node.produceBlock();
  expect(await credited(3)).toEqual([]);
  await bench.node.produceBlock();
  expect(await credited(3)).toEqual([app]);
});

test('a deposit that the wallet cannot hold stops nothing: it is stored without a transfer, and health counts it', async () => {
  const [app, other] = [newApp(), newApp()];
  const { address } = await walletOf(app);
  await bench.node.fund(address, BigInt(Number.MAX_SAFE_INTEGER));
  await bench.node.fund(address, 1n);
  await bench.node.fund((await walletOf(other)).address, 1n);
  expect(await credited()).toEqual(expect.arrayContaining([app, other]));
  expect(await walletOf(app)).toMatchObject({ balance: BigInt(Number.MAX_SAFE_INTEGER) });
  expect(await row(pool, sql`select count(*) from deposit where transfer_id is null`)).toEqual({ count: 1n });
});

test('deposits beyond 64 bits stop nothing: they are stored as 2^63-1 without a transfer, and reconciliation agrees', async () => {
  const [app, other] = [newApp(), newApp()];
  const recipients = [(await walletOf(app)).address, (await walletOf(other)).address];
  for (let block = 0; block < 2; block++) await bench.node.produceBlock();
  const { height } = await bench.node.height();
  const transfer = { height, at: new Date(0), sender: 'whale', memo: '' };
  const amounts = [2n ** 63n, 2n ** 256n - 1n, 2n ** 62n, 2n ** 53n];
  const chain: Chain = {
    ...crashing(bench.node, 0, Math.random),
    transfers: async function* (from, to) {
      await Promise.resolve();
      if (height < from || height > to) return;
      for (const [eventIndex, amount] of amounts.entries()) {
        yield { ...transfer, transactionHash: 'AA', eventIndex, recipient: recipients[0]!, amount };
      }
      yield { ...transfer, transactionHash: 'BB', eventIndex: 0, recipient: recipients[1]!, amount: 70n };
    },
  };
  const found: string[] = [];
  for (let some; (some = await creditDeposits(watch(0, chain))) !== undefined;) found.push(...some);
  expect(found).toEqual([app, other]);
  const max = 2n ** 63n - 1n;
  expect(
    await rows(pool, sql`select amount, transfer_id from deposit where app_id = ${app} order by event_index`),
  ).toEqual([max, max, 2n ** 62n, 2n ** 53n].map((amount) => ({ amount, transfer_id: null })));
  expect(await walletOf(app)).toMatchObject({ balance: 0n });
  expect(await walletOf(other)).toMatchObject({ balance: 70n });
  expect(await row(pool, sql`select amount from unswept where address = ${recipients[0]!}`)).toEqual({ amount: max });
  expect(await checkChain(pool, chain)).toEqual([]);
});

test('a round of sweeps reads its hundred addresses in their order, however many there are', async () => {
  await execute(
    pool,
    sql`insert into unswept (address, address_index, amount)
        select 'address ' || lpad(n::text, 6, '0'), n, case when n % 2 = 0 then 20000 else 0 end
        from generate_series(1, 50000) n`,
  );
  await pool.query('analyze unswept');
  const next = unsweptAfter('address 040000', 10_000n);
  const found = await rows<{ address: string }>(pool, next);
  expect(found.map(({ address }) => address)).toEqual(
    Array.from({ length: 100 }, (_, at) => `address 0${40_002 + 2 * at}`),
  );
  const lines = await rows<{ 'QUERY PLAN': string }>(pool, sql`explain (analyze, costs off) ${next}`);
  const plan = lines.map((line) => line['QUERY PLAN']).join('\n');
  const read = [...plan.matchAll(/actual .*rows=(\d+)/g)].map(([, count]) => Number(count));
  expect(read.length).toBeGreaterThan(3);
  expect(Math.max(...read)).toBeLessThanOrEqual(200);
  expect(plan).not.toContain('Rows Removed by Filter');
});

test('a held sweep that a person gives up is signed for again, and leaves nothing behind', async () => {
  const { address } = await walletOf(newApp());
  await bench.node.fund(address, 50_000n);
  await credited();
  const refusing: Chain = {
    ...crashing(bench.node, 0, Math.random),
    broadcast: () => Promise.resolve({ state: 'refused', codespace: 'sdk', code: 13 }),
  };
  await new Sweeps({ ...bench.options, chain: refusing, hotWallet: bench.options.sender }).advance();
  const held = await row<{ hash: string }>(pool, sql`select hash from outgoing_transaction where state = 'held'`);
  for (let block = 0; block < 40; block++) {
    await bench.node.produceBlock();
    await sweep();
  }
  await releaseHeld(pool, held!.hash);
  expect(await rows(pool, sql`select from sweep`)).toEqual([]);
  for (let round = 0; round < 3; round++) {
    await sweep();
    await bench.node.produceBlock();
  }
  expect(await rows(pool, sql`select state from outgoing_transaction order by number`)).toEqual([
    { state: 'expired' },
    { state: 'confirmed' },
  ]);
  expect(await row(pool, sql`select amount from sweep`)).toEqual({ amount: 50_000n });
  expect(await bench.node.balance(address)).toBe(0n);
});

test('deposits worth more than 20 fees are sent to the hot wallet, which the application does not notice; smaller ones wait', async () => {
  const [large, small] = [newApp(), newApp()];
  await bench.node.fund((await walletOf(large)).address, 50_000n);
  await bench.node.fund((await walletOf(small)).address, 9_999n);
  await credited();
  for (let round = 0; round < 4; round++) {
    await sweep();
    await bench.node.produceBlock();
  }
  expect(await bench.node.balance((await walletOf(large)).address)).toBe(0n);
  expect(await bench.node.balance((await walletOf(small)).address)).toBe(9_999n);
  expect(await bench.node.balance(bench.options.sender)).toBe(49_500n);
  expect(await walletOf(large)).toMatchObject({ balance: 50_000n, totalSpent: 0n });
  // The sweep itself is no deposit.
  expect(await credited()).toEqual([]);
  const cost = await row(pool, sql`select debits_posted as fees from account where id = 'platform:cost'`);
  expect(cost).toEqual({ fees: 500n });
});

test('addresses that cannot be swept do not keep the others from their turn', async () => {
  const apps = Array.from({ length: 8 }, newApp);
  const addresses: string[] = [];
  for (const app of apps) addresses.push((await walletOf(app)).address);
  for (const [at, address] of addresses.entries()) await bench.node.fund(address, at === 0 ? 10_000n : 90_000n);
  await credited();
  const [good, ...others] = addresses;
  const chain: Chain = {
    ...crashing(bench.node, 0, Math.random),
    account: (address) =>
      others.includes(address) ? Promise.reject(new Error('no account')) : bench.node.account(address),
  };
  const sweeps = new Sweeps({ ...bench.options, chain, hotWallet: bench.options.sender });
  for (let round = 0; round < 12; round++) {
    await sweeps.advance().catch((error: unknown) => expect(error).toEqual(new Error('no account')));
    await bench.node.produceBlock();
  }
  expect(await bench.node.balance(good!)).toBe(0n);
  expect(await bench.node.balance(others[0]!)).toBe(90_000n);
});

test('with more addresses than rounds can visit in time, none is signed for and sent too late', async () => {
  for (let at = 0; at < 250; at++) await bench.node.fund((await walletOf(newApp())).address, 20_000n);
  await credited();
  const sweeps = new Sweeps({ ...bench.options, hotWallet: bench.options.sender });
  for (let round = 0; round < 6; round++) {
    await sweeps.advance();
    for (let block = 0; block < 3; block++) await bench.node.produceBlock();
  }
  expect(await rows(pool, sql`select distinct state from outgoing_transaction`)).toEqual([{ state: 'confirmed' }]);
  expect(await row(pool, sql`select sum(amount)::bigint as unswept from unswept`)).toEqual({ unswept: 0n });
});

test('a sweep that fails on the chain costs one fee: the address signs nothing until a person resumes it', async () => {
  const { address } = await walletOf(newApp());
  await bench.node.fund(address, 50_000n);
  await credited();
  const rounds = async (hotWallet: string) => {
    const sweeps = new Sweeps({ ...bench.options, hotWallet });
    for (let round = 0; round < 5; round++) {
      await sweeps.advance();
      await bench.node.produceBlock();
    }
  };
  await rounds(feeCollector('celestia'));
  expect(await bench.node.balance(address)).toBe(49_500n);
  expect(await listStopped(pool)).toEqual([{ address, reason: 'a sweep has failed on the chain with code 4' }]);
  await resumeSenders(pool);
  await rounds(bench.options.sender);
  expect(await bench.node.balance(address)).toBe(0n);
});

test('a sweep in flight ends when a higher gas price makes what it carries too little to sweep', async () => {
  await bench.node.fund((await walletOf(newApp())).address, 20_000n);
  await credited();
  await sweep();
  const dearer = new Sweeps({ ...bench.options, gasPrice: 1, hotWallet: bench.options.sender });
  await bench.node.produceBlock();
  await dearer.advance();
  expect(await rows(pool, sql`select state from outgoing_transaction`)).toEqual([{ state: 'confirmed' }]);
});

test('an address that another process sweeps at the same time is not swept for the little that has arrived since', async () => {
  const { address } = await walletOf(newApp());
  await bench.node.fund(address, 20_000n);
  await credited();
  const chain: Chain = {
    ...crashing(bench.node, 0, Math.random),
    balance: async () => {
      await execute(pool, sql`update unswept set amount = 900`);
      return 20_000n;
    },
  };
  await new Sweeps({ ...bench.options, chain, hotWallet: bench.options.sender }).advance();
  expect(await rows(pool, sql`select from outgoing_transaction`)).toEqual([]);
});

const depositCount = size({ run: 300, long: 1_000 });
const seed = seedOf('finance/deposits');
test(`${depositCount} deposits with sweeps by two processes that crash, on a chain that loses and evicts, by the seed ${seed}: all arrive once`, async () => {
  const random = seededRandom(seed);
  const faults = { loss: 0.1, eviction: 0.1, delayBlocks: 2, answerLoss: 0.1, indexLagBlocks: 3 };
  bench = await openPayoutBench(pool, faults, random);
  const apps = Array.from({ length: 20 }, newApp);
  const addresses = new Map<string, string>();
  for (const app of apps) addresses.set(app, (await walletOf(app)).address);
  const sent = new Map<string, bigint>();
  const chain = crashing(bench.node, 0.02, random);
  const copies = [1, 2].map(() => async () => {
    await creditDeposits({ ...watch(1, chain) });
    await new Sweeps({ ...bench.options, chain, hotWallet: bench.options.sender }).advance();
  });
  const rest = async () => {
    const found = await rows<{ amount: bigint }>(pool, sql`select amount from unswept where amount >= 10000`);
    return found.length > 0 || (await credited(1)).length > 0;
  };
  for (let round = 0; round < depositCount || (await rest()); round++) {
    if (round > 20_000) throw new Error(`deposits are stuck; seed ${seed}`);
    if (round < depositCount) {
      const app = apps[round % apps.length]!;
      const amount = BigInt(1_000 + Math.floor(random() * 20_000));
      await bench.node.fund(addresses.get(app)!, amount);
      sent.set(app, (sent.get(app) ?? 0n) + amount);
    } else await bench.node.produceBlock();
    if (round % 10 === 0 || round >= depositCount) await Promise.allSettled(copies.map((copy) => copy()));
  }
  const balances = await Promise.all(apps.map(async (app) => [app, (await walletOf(app)).balance] as const));
  expect({ seed, balances: new Map(balances) }).toEqual({ seed, balances: sent });
  const total = [...sent.values()].reduce((sum, amount) => sum + amount, 0n);
  const state = (await row<{ fees: bigint; onChain: bigint; unswept: bigint }>(
    pool,
    sql`select (select debits_posted from account where id = 'platform:cost') as fees,
          (select sum(balance)::bigint from simulated_account) as "onChain",
          (select coalesce(sum(amount), 0)::bigint from unswept) as unswept`,
  ))!;
  expect(state.onChain).toBe(total - state.fees);
  expect((await bench.node.balance(bench.options.sender)) + state.unswept).toBe(total - state.fees);
  expect(await execute(pool, sql`select from outgoing_transaction where state = 'expired'`)).toBeGreaterThan(0);
});
