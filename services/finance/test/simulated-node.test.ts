import { TxBody, TxRaw } from 'cosmjs-types/cosmos/tx/v1beta1/tx';
import type { Pool } from '@granary/shared/postgres/pool';
import { eventually } from '@granary/testing/eventually';
import type { ChainTransfer } from '../src/chain/chain';
import { feeOf, gasLimit } from '../src/chain/fee';
import { signTransfer, type SignedTransaction } from '../src/chain/sign-transfer';
import type { Transfer } from '@granary/shared/money/cosmos/transaction';
import { feeCollector } from '../src/chain/module-accounts';
import { openSimulatedNode, type SimulatedNode } from '../src/simulated-chain/simulated-node';
import { financePool } from './support/harness';
import { gasPrice, manualChain, newAddress, openPayoutBench, type PayoutBench } from './support/payout-copies';

let pool: Pool;
let bench: PayoutBench;
let node: SimulatedNode;
beforeEach(async () => {
  pool = (await financePool(4)).pool;
  bench = await openPayoutBench(pool);
  node = bench.node;
  await node.fund(bench.options.sender, 1_000_000n);
});
afterEach(() => pool.end());

async function signed(change: Partial<Transfer> = {}): Promise<SignedTransaction> {
  const { sender, keys } = bench.options;
  const account = (await node.account(sender))!;
  const { height } = await node.height();
  return signTransfer(keys, 'hot', {
    chainId: node.id,
    accountNumber: account.number,
    sequence: account.sequence,
    sender,
    denom: 'utia',
    memo: 'm',
    outputs: [{ address: newAddress(), amount: 5n }],
    timeoutHeight: height + 10n,
    fee: { amount: feeOf(gasLimit(1), gasPrice), gas: gasLimit(1) },
    ...change,
  });
}
const broadcast = async (change: Partial<Transfer> = {}) => node.broadcast((await signed(change)).bytes);
const refused = (code: number) => ({ state: 'refused', codespace: 'sdk', code });
const allTransfers = async () => {
  const found: ChainTransfer[] = [];
  for await (const each of node.transfers(1n, (await node.height()).height)) found.push(each);
  return found;
};

test('its id says that it is simulated, and is that of the database', async () => {
  expect(node.id).toMatch(/^granary-simulated-[0-9a-f]{8}$/);
  expect((await openSimulatedNode({ pool, settings: manualChain })).id).toBe(node.id);
  const { pool: other } = await financePool(1);
  expect((await openSimulatedNode({ pool: other, settings: manualChain })).id).not.toBe(node.id);
  await other.end();
});

test('a transaction is included in the next block: it moves money, takes its fee, and is found with its transfers', async () => {
  const [a, b] = [newAddress(), newAddress()];
  const outputs = [
    { address: a, amount: 5n },
    { address: b, amount: 7n },
    { address: a, amount: 1n },
  ] as const;
  const gas = gasLimit(3);
  const { bytes, hash } = await signed({ outputs, fee: { amount: feeOf(gas, gasPrice), gas } });
  const { height } = await node.height();
  expect(await node.broadcast(bytes)).toEqual({ state: 'accepted' });
  expect(await node.broadcast(bytes)).toEqual({ state: 'known' });
  expect(await node.find(hash)).toEqual({ state: 'absent', height });
  await node.produceBlock();
  expect(await node.broadcast(bytes)).toEqual({ state: 'known' });
  const transfer = (eventIndex: number) => ({
    transactionHash: hash,
    eventIndex,
    height: height + 1n,
    at: expect.any(Date) as Date,
    memo: 'm',
    sender: bench.options.sender,
    recipient: outputs[eventIndex]!.address,
    amount: outputs[eventIndex]!.amount,
  });
  const transfers = [0, 1, 2].map(transfer);
  expect(await node.find(hash)).toEqual({ state: 'included', height: height + 1n, code: 0, codespace: '', transfers });
  expect((await allTransfers()).slice(-3)).toEqual(transfers);
  expect([await node.balance(a), await node.balance(b)]).toEqual([6n, 7n]);
  expect(await node.balance(bench.options.sender)).toBe(1_000_000n - 13n - feeOf(gas, gasPrice));
  expect(await node.account(bench.options.sender)).toMatchObject({ sequence: 1n, height: height + 1n });
});

test('what a node of the Cosmos SDK refuses is refused with its code, and changes nothing', async () => {
  const fee = { amount: feeOf(gasLimit(1), gasPrice), gas: gasLimit(1) };
  const { height } = await node.height();
  expect(await broadcast({ chainId: 'mocha-4' })).toEqual(refused(4));
  expect(await broadcast({ accountNumber: 77n })).toEqual(refused(4));
  expect(await broadcast({ sequence: 1n })).toEqual(refused(32));
  expect(await broadcast({ fee: { ...fee, amount: fee.amount - 1n } })).toEqual(refused(13));
  expect(await broadcast({ denom: 'uatom' })).toEqual(refused(13));
  expect(await broadcast({ fee: { ...fee, amount: 1_000_001n } })).toEqual(refused(5));
  expect(await broadcast({ timeoutHeight: height })).toEqual(refused(30));
  expect(await broadcast({ memo: 'x'.repeat(257) })).toEqual(refused(12));
  const raw = TxRaw.decode((await signed()).bytes);
  const body = { ...TxBody.decode(raw.bodyBytes), extensionOptions: [{ typeUrl: '/x', value: new Uint8Array() }] };
  const extended = TxRaw.encode({ ...raw, bodyBytes: TxBody.encode(body).finish() }).finish();
  expect(await node.broadcast(extended)).toEqual(refused(2));
  expect(await node.broadcast(Buffer.from('nonsense'))).toEqual(refused(2));
  const stranger = await openPayoutBench(pool);
  const unknown = { keys: stranger.options.keys, sender: stranger.options.sender };
  const { bytes } = await signTransfer(unknown.keys, 'hot', {
    chainId: node.id,
    accountNumber: 1n,
    sequence: 0n,
    sender: unknown.sender,
    denom: 'utia',
    memo: '',
    fee,
    outputs: [{ address: newAddress(), amount: 5n }],
    timeoutHeight: height + 10n,
  });
  expect(await node.broadcast(bytes)).toEqual(refused(4));
  await node.produceBlock();
  expect(await node.balance(bench.options.sender)).toBe(1_000_000n);
  expect(await node.account(bench.options.sender)).toMatchObject({ sequence: 0n });
});

test('a transaction that fails in its block takes its fee and its sequence, and moves nothing', async () => {
  const gas = gasLimit(1);
  const fee = { amount: feeOf(gas, gasPrice), gas };
  const failing: Array<[Partial<Transfer>, number]> = [
    [{ outputs: [{ address: feeCollector('celestia'), amount: 5n }] }, 4],
    [{ outputs: [{ address: newAddress(), amount: 1_000_000n }] }, 5],
    [{ fee: { amount: fee.amount, gas: 90_000n } }, 11],
  ];
  for (const [at, [change, code]] of failing.entries()) {
    const { bytes, hash } = await signed(change);
    expect(await node.broadcast(bytes)).toEqual({ state: 'accepted' });
    await node.produceBlock();
    expect(await node.find(hash)).toMatchObject({ state: 'included', code, transfers: [] });
    expect(await node.account(bench.options.sender)).toMatchObject({ sequence: BigInt(at + 1) });
    expect(await node.balance(bench.options.sender)).toBe(1_000_000n - fee.amount * BigInt(at + 1));
  }
});

test('what is lost or evicted is never included, and may be sent again; late inclusion ends at the timeout height', async () => {
  const fate = { now: 1 };
  const settings = { ...manualChain, loss: 0.5, eviction: 0.5, delayBlocks: 9 };
  node = await openSimulatedNode({ pool, settings, random: () => fate.now });
  const { bytes, hash } = await signed({ timeoutHeight: (await node.height()).height + 5n });
  const isIncluded = async () => {
    await node.produceBlock();
    return (await node.find(hash)).state === 'included';
  };
  fate.now = 0;
  expect(await node.broadcast(bytes)).toEqual({ state: 'accepted' });
  expect(await isIncluded()).toBe(false);
  fate.now = 0.5;
  // Not lost, and due five blocks after the next one: that is too late.
  expect(await node.broadcast(bytes)).toEqual({ state: 'accepted' });
  for (let block = 0; block < 6; block++) expect(await isIncluded()).toBe(false);
  const late = await signed({ timeoutHeight: (await node.height()).height + 100n });
  expect(await node.broadcast(late.bytes)).toEqual({ state: 'accepted' });
  fate.now = 0.4;
  for (let block = 0; block < 6; block++) await node.produceBlock();
  expect((await node.find(late.hash)).state).toBe('absent');
  fate.now = 0.5;
  expect(await node.broadcast(late.bytes)).toEqual({ state: 'accepted' });
  for (let block = 0; block < 6; block++) await node.produceBlock();
  expect((await node.find(late.hash)).state).toBe('included');
});

test('with a block time, blocks come by the clock, for all copies of the service the same', async () => {
  const settings = { ...manualChain, blockMs: 20 };
  const copies = await Promise.all([1, 2, 3].map(() => openSimulatedNode({ pool, settings })));
  const { bytes, hash } = await signed({ timeoutHeight: (await node.height()).height + 100_000n });
  expect(await copies[0]!.broadcast(bytes)).toEqual({ state: 'accepted' });
  await eventually(async () => (await copies[1]!.find(hash)).state === 'included');
  const heights = await Promise.all(copies.map((copy) => copy.height()));
  await eventually(async () => (await copies[2]!.height()).height > heights[0]!.height + 2n);
  const before = await copies[0]!.height();
  const after = await eventually(async () => {
    const found = await copies[1]!.height();
    return found.height > before.height && found;
  });
  expect(after.at.getTime() - before.at.getTime()).toBe(Number(after.height - before.height) * 20);
});
