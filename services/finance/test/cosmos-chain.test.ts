import { createLogger } from '@granary/shared/logger';
import { row, rows, type Pool } from '@granary/shared/postgres/pool';
import { sql } from '@granary/shared/postgres/sql';
import { transaction } from '@granary/shared/postgres/transaction';
import { limitMs } from '@granary/testing/speed';
import type { ChainTransfer } from '../src/chain/chain';
import { openCosmosChain } from '../src/cosmos-chain/open-cosmos-chain';
import type { CosmosChain } from '../src/cosmos-chain/cosmos-chain';
import { feeCollector } from '../src/chain/module-accounts';
import { beginWatch, creditDeposits } from '../src/deposits/credit-deposits';
import { Sweeps } from '../src/deposits/sweep';
import { listHeld } from '../src/payouts/held-transactions';
import { advancePayouts } from '../src/payouts/payout-task';
import { reservePayouts } from '../src/payouts/reserve-payouts';
import { checkChain } from '../src/reconciliation/chain-checks';
import { verifyLedger } from '../src/reconciliation/verify-ledger';
import type { SimulatedChainSettings } from '../src/simulated-chain/settings';
import { getWallet } from '../src/wallets/wallet';
import { startStandIns, type StandIn } from './support/comet-stand-in';
import { financePool } from './support/harness';
import { newAddress, openPayoutBench, type PayoutBench } from './support/payout-copies';
import { seededRandom } from '@granary/testing/random';
import { seedOf } from '@granary/testing/seeds';
import { size } from '@granary/testing/size';

const log = createLogger('test', 'silent');
const chaosLimitMs = limitMs(300_000);
let pool: Pool;
let bench: PayoutBench;
let nodes: StandIn[];
let chain: CosmosChain;
let health: () => Promise<{ status: string; message?: string }>;
afterEach(async () => {
  await Promise.all(nodes.map((node) => node.stop()));
  expect((await verifyLedger(pool, () => undefined)).differences).toEqual([]);
  await pool.end();
});

async function open(count: number, faults: Partial<SimulatedChainSettings> = {}, random?: () => number): Promise<void> {
  pool = (await financePool(4)).pool;
  bench = await openPayoutBench(pool, faults, random);
  nodes = await startStandIns(pool, bench.node, count);
  await connect();
  await beginWatch({ pool, chain });
  await getWallet(bench.wallets, 'shop');
}
const settings = () => ({
  urls: nodes.map(({ url }) => url),
  chainId: bench.node.id,
  denom: 'utia',
  prefix: 'celestia',
  // A node that is slow for once would be left out for the few rounds that a test has.
  timeoutMs: limitMs(3_000),
  statusTtlMs: 0,
});
async function connect(change: Partial<ReturnType<typeof settings>> = {}): Promise<void> {
  const opened = await openCosmosChain(pool, { ...settings(), ...change }, log);
  chain = opened.chain;
  health = opened.check;
}
const walletAddress = async () => (await getWallet(bench.wallets, 'shop')).address;
const options = () => ({ ...bench.options, chain });
const watch = () => ({ pool, chain, chainAccount: bench.chainAccount, depthBlocks: 1, log });
const reserve = (amounts: readonly bigint[]) =>
  transaction(pool, (tx) =>
    reservePayouts(
      tx,
      amounts.map((amount) => ({ appId: 'shop', trigger: 'manual' as const, amount, destination: newAddress() })),
      { floorUtia: 1n, chainAccount: bench.chainAccount },
    ),
  );
/** One round of each task of the service, then a block. Errors leave everything for the next round. */
async function round(): Promise<void> {
  await Promise.allSettled([
    creditDeposits(watch()),
    advancePayouts(options()),
    new Sweeps({ ...options(), hotWallet: bench.options.sender }).advance(),
  ]);
  await bench.node.produceBlock();
}
async function rounds(count: number, until: () => Promise<boolean> = () => Promise.resolve(false)): Promise<void> {
  for (let at = 0; at < count && !(await until()); at++) await round();
}
const paid = (count: number) => async () =>
  (await row<{ count: bigint }>(pool, sql`select count(*) from payout where status = 'confirmed'`))!.count ===
  BigInt(count);
const balance = async () => (await getWallet(bench.wallets, 'shop')).balance;
const attempts = () =>
  rows<{ state: string; sequence: bigint }>(
    pool,
    sql`select state, sequence from outgoing_transaction
    where sender = ${bench.options.sender} order by number`,
  );

test('a deposit is credited, swept and paid out through JSON-RPC, and reconciliation finds the same on the chain', async () => {
  await open(1);
  const address = await walletAddress();
  await bench.node.fund(address, 100_000n);
  await bench.node.fund(newAddress(), 7n);
  await rounds(10, async () => (await bench.node.balance(address)) === 0n);
  expect(await balance()).toBe(100_000n);
  expect(await chain.balance(bench.options.sender)).toBe(99_500n);
  await reserve([1_000n, 2_000n, 3_000n]);
  await rounds(20, paid(3));
  expect(await attempts()).toEqual([{ state: 'confirmed', sequence: 0n }]);
  const sent = await rows<{ amount: bigint }>(
    pool,
    sql`select t.amount from simulated_transfer t join payout p on p.destination = t.recipient order by t.amount`,
  );
  expect(sent.map(({ amount }) => amount)).toEqual([1_000n, 2_000n, 3_000n]);
  await rounds(3);
  for (let found; (found = await checkChain(pool, chain)) !== undefined;) expect(found).toEqual([]);
});

test('what the port answers is what the chain answers without JSON-RPC', async () => {
  await open(2);
  await bench.node.fund(bench.options.sender, 1_000_000n);
  expect(await chain.account(newAddress())).toBeUndefined();
  expect(await chain.balance(newAddress())).toBe(0n);
  expect(await chain.account(bench.options.sender)).toEqual(await bench.node.account(bench.options.sender));
  expect(await chain.find('AB'.repeat(32))).toEqual({ state: 'absent', height: (await bench.node.height()).height });
  const { hash } = await payOne();
  const direct = await bench.node.find(hash);
  const found = await chain.find(hash);
  expect(found).toMatchObject({ state: 'included', code: 0, height: (direct as { height: bigint }).height });
  const all: ChainTransfer[] = [];
  for await (const transfer of chain.transfers(1n, (await bench.node.height()).height)) all.push(transfer);
  const [direct1] = (direct as { transfers: ChainTransfer[] }).transfers;
  expect(all.filter((each) => each.transactionHash === hash)).toEqual([
    { ...direct1, eventIndex: expect.any(Number) as number },
  ]);
  expect(found).toMatchObject({ transfers: all.filter((each) => each.transactionHash === hash) });
});

test('of a transaction that has failed the port answers the code and the module whose code it is', async () => {
  await open(2);
  await bench.node.fund(await walletAddress(), 50_000n);
  for (let round = 0; round < 4; round++) {
    await creditDeposits(watch());
    await new Sweeps({ ...options(), hotWallet: feeCollector('celestia') }).advance();
    await bench.node.produceBlock();
  }
  const { hash } = (await row<{ hash: string }>(pool, sql`select hash from outgoing_transaction`))!;
  expect(await chain.find(hash)).toMatchObject({ state: 'included', code: 4, codespace: 'sdk', transfers: [] });
});

/** Pays one payout out of money that the hot wallet has. */
async function payOne(): Promise<{ hash: string }> {
  await bench.node.fund(await walletAddress(), 5_000n);
  await rounds(4);
  await reserve([1_000n]);
  await rounds(10, paid(1));
  return (await row<{ hash: string }>(
    pool,
    sql`select hash from outgoing_transaction where sender = ${bench.options.sender} order by number desc limit 1`,
  ))!;
}

test.each(['garbage', 'unavailable', 'nothing', 'flood'] as const)(
  'a node that answers %s costs nothing: the other one is asked, and health names the one that failed',
  async (answer) => {
    await open(2);
    await bench.node.fund(bench.options.sender, 1_000_000n);
    nodes[0]!.faults.answer = answer;
    await payOne();
    expect(await health()).toMatchObject({ status: 'DEGRADED', message: expect.stringMatching(/node 1/) as string });
    expect((await attempts()).map(({ state }) => state)).toEqual(['confirmed']);
  },
);

test('while no node answers deposits and payouts wait, and go on when one does', async () => {
  await open(2);
  await bench.node.fund(bench.options.sender, 1_000_000n);
  await payOne();
  for (const { faults } of nodes) faults.answer = 'unavailable';
  await bench.node.fund(await walletAddress(), 70_000n);
  await reserve([2_000n]);
  await rounds(5);
  expect(await paid(1)()).toBe(true);
  expect(await health()).toMatchObject({ status: 'DEGRADED', message: expect.stringMatching(/no node/) as string });
  delete nodes[1]!.faults.answer;
  await rounds(20, paid(2));
  expect(await paid(2)()).toBe(true);
  expect(await balance()).toBe(72_000n);
});

test('a node that is behind the others is not asked', async () => {
  await open(2);
  await bench.node.fund(bench.options.sender, 1_000_000n);
  await nodes[0]!.freeze();
  for (let block = 0; block < 8; block++) await bench.node.produceBlock();
  await payOne();
  expect(await health()).toMatchObject({ message: expect.stringMatching(/node 1 is behind/) as string });
  expect((await attempts()).map(({ state }) => state)).toEqual(['confirmed']);
});

test('a transaction expires only when two nodes have not found it: a node that is cut off gives no payout free', async () => {
  await open(2, { loss: 1 });
  await bench.node.fund(bench.options.sender, 1_000_000n);
  await bench.node.fund(await walletAddress(), 5_000n);
  await rounds(4);
  await reserve([1_000n]);
  await rounds(3);
  nodes[0]!.faults.answer = 'unavailable';
  await rounds(30);
  expect((await attempts()).map(({ state }) => state)).toEqual(['broadcast']);
  delete nodes[0]!.faults.answer;
  await connect();
  await rounds(10);
  expect((await attempts()).map(({ state }) => state).slice(0, 2)).toEqual(['expired', expect.any(String)]);
});

test('a refusal counts when every node refuses: one that asks for a higher fee holds no payout', async () => {
  await open(2);
  await bench.node.fund(bench.options.sender, 1_000_000n);
  nodes[0]!.faults.refuses = 13;
  await payOne();
  // Each transaction goes to another node first.
  for (let payouts = 2; payouts < 5; payouts++) {
    await reserve([1_000n]);
    await rounds(10, paid(payouts));
  }
  expect(await listHeld(pool)).toEqual([]);
  nodes[1]!.faults.refuses = 13;
  await reserve([1_000n]);
  await rounds(5);
  expect(await listHeld(pool)).toMatchObject([{ error: 'a node refused it with code 13 of sdk' }]);
});

test('a refusal does not count beside a node that may have the transaction: its answer was lost', async () => {
  await open(2);
  await bench.node.fund(bench.options.sender, 1_000_000n);
  nodes[0]!.faults.losesBroadcasts = true;
  nodes[1]!.faults.refuses = 32;
  const bytes = Buffer.from('a transaction');
  await expect(chain.broadcast(bytes)).rejects.toThrow(/node 1/);
  expect(nodes.map(({ calls }) => calls.includes('broadcast_tx_sync'))).toEqual([true, true]);
  await connect();
  delete nodes[0]!.faults.losesBroadcasts;
  nodes[0]!.faults.refuses = 13;
  expect(await chain.broadcast(bytes)).toMatchObject({ state: 'refused' });
});

test('a start fails with a node of another chain, without an index, or without results of blocks', async () => {
  await open(2);
  const { faults } = nodes[1]!;
  await expect(connect({ chainId: 'mocha-5' })).rejects.toThrow(/node 1 is of the chain granary-simulated-.*mocha-5/);
  faults.chainId = 'mocha-4';
  await expect(connect()).rejects.toThrow(/node 2 is of the chain mocha-4/);
  delete faults.chainId;
  faults.hasIndex = false;
  await expect(connect()).rejects.toThrow(/node 2 has no index.*indexer = "kv"/);
  faults.hasIndex = true;
  faults.keepsResults = false;
  await bench.node.produceBlock();
  await expect(connect()).rejects.toThrow(/node 2 does not serve.*discard_abci_responses = false/);
});

test('blocks that no node serves are read later: no deposit is missed, and health counts them', async () => {
  await open(2);
  for (const { faults } of nodes) faults.keepsResults = false;
  await bench.node.fund(await walletAddress(), 9n);
  for (let block = 0; block < 110; block++) await bench.node.produceBlock();
  await expect(creditDeposits(watch())).rejects.toThrow(/not persisting abci responses/);
  expect(await health()).toMatchObject({
    status: 'DEGRADED',
    message: expect.stringMatching(/11\d blocks have not been read for deposits/) as string,
  });
  delete nodes[1]!.faults.keepsResults;
  while (await creditDeposits(watch()));
  expect(await balance()).toBe(9n);
  expect(await health()).toMatchObject({ status: 'HEALTHY' });
});

test('a node that turns out to be of another chain later is not asked any more', async () => {
  await open(2);
  await bench.node.fund(bench.options.sender, 1_000_000n);
  nodes[0]!.faults.chainId = 'mocha-4';
  await payOne();
  expect(await health()).toMatchObject({ message: expect.stringMatching(/node 1 is of the chain mocha-4/) as string });
  expect(nodes[0]!.calls).not.toContain('broadcast_tx_sync');
});

const batches = size({ run: 10, long: 30 });
const seed = seedOf('finance/cosmos-chain');
test(
  `${10 * batches} payouts with deposits by nodes that fail in turn, on a chain that loses, delays, evicts and loses answers, by the seed ${seed}: each once`,
  async () => {
    const random = seededRandom(seed);
    const faults = { loss: 0.1, eviction: 0.1, delayBlocks: 2, answerLoss: 0.2, indexLagBlocks: 3 };
    await open(3, faults, random);
    await bench.node.fund(bench.options.sender, 10_000_000n);
    let deposited = 0n;
    for (let at = 0; at < batches; at++) {
      const amount = 20_000n + BigInt(at);
      await bench.node.fund(await walletAddress(), amount);
      deposited += amount;
    }
    await rounds(200, async () => (await balance()) === deposited);
    const kinds = [undefined, undefined, 'garbage', 'unavailable'] as const;
    for (let batch = 0; batch < batches; batch++) {
      for (const node of nodes) {
        const answer = kinds[Math.floor(random() * kinds.length)];
        if (answer) node.faults.answer = answer;
        else delete node.faults.answer;
      }
      await reserve(Array.from({ length: 10 }, () => BigInt(100 + Math.floor(random() * 1_000))));
      await connect().catch(() => undefined);
      await rounds(2);
    }
    for (const { faults: each } of nodes) delete each.answer;
    await connect();
    await rounds(2_000, paid(10 * batches));
    const received = await rows<{ count: bigint; differs: boolean }>(
      pool,
      sql`select count(t.hash), bool_or(t.amount is distinct from p.amount) as differs
        from payout p left join simulated_transfer t on t.recipient = p.destination group by p.id`,
    );
    expect({
      seed,
      count: received.length,
      wrong: received.filter(({ count, differs }) => count !== 1n || differs),
    }).toEqual({ seed, count: 10 * batches, wrong: [] });
    await rounds(40, async () =>
      (await attempts()).every(({ state }) => ['confirmed', 'expired', 'failed'].includes(state)),
    );
    await rounds(10);
    for (let found; (found = await checkChain(pool, chain)) !== undefined;)
      expect({ seed, found }).toEqual({ seed, found: [] });
  },
  chaosLimitMs,
);
