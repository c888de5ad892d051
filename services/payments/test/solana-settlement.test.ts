import { createPublicKey, verify } from 'node:crypto';
import { base58 } from '@scure/base';
import type { KeyPairSigner } from '@solana/kit';
import { derive, feeKeyOf } from '@granary/payments/schemes/solana/fee-key';
import { openSolanaNetworks } from '@granary/payments/schemes/solana/open-networks';
import type { SolanaNetwork } from '@granary/payments/schemes/solana/network';
import { parseSolanaAssets } from '@granary/payments/schemes/solana/assets';
import { readEnvelope } from '@granary/payments/verify/envelope';
import { Verifier } from '@granary/payments/verify/verifier';
import { createLogger } from '@granary/shared/logger';
import { SolanaChain } from '@granary/testing/solana-chain';
import { paySolana, solanaSigner, solanaTest } from '@granary/testing/solana-client';
import { limitMs } from '@granary/testing/speed';
import { SolanaExact } from '../src/schemes/solana/verify';

const log = createLogger('test', 'silent');
const key = feeKeyOf(Buffer.alloc(64, 5));
const now = () => new Date();
const verifier = new Verifier(
  [new SolanaExact({ assets: parseSolanaAssets('usdc-test'), feePayers: [key.address] })],
  now,
);

let chain: SolanaChain;
let urls: string[];
let payer: KeyPairSigner;
let payTo: string;
let stops: Array<() => Promise<void>> = [];
beforeEach(async () => {
  chain = new SolanaChain();
  urls = [await chain.serve()];
  stops = [() => chain.stop()];
  [payer, payTo] = [await solanaSigner(1), (await solanaSigner(2)).address];
  chain.airdrop(key.address);
  await chain.give(payTo, 0n);
  await chain.give(payer.address, 50_000n);
});
afterEach(async () => {
  for (const stop of stops.reverse()) await stop();
});

async function open(
  settings: { commitment?: 'confirmed' | 'finalized'; urls?: string[]; now?: () => Date } = {},
): Promise<SolanaNetwork> {
  const opened = await openSolanaNetworks(log, {
    key,
    timeoutMs: limitMs(5_000),
    commitment: 'confirmed',
    everyMs: 3_600_000,
    now,
    ...settings,
    urls: new Map([[solanaTest.network, settings.urls ?? urls]]),
  });
  stops.push(() => opened.stop());
  return opened.networks[0]!;
}

/** A payment of the official client, verified. */
async function paid(memo = 'a quote') {
  const extra = { feePayer: key.address, memo };
  const envelope = await paySolana(2, payer, urls[0]!, { payTo, extra });
  const { verified } = await verifier.verifyEnvelope(readEnvelope(Buffer.from(JSON.stringify(envelope))));
  return { ...verified, validUntil: new Date(verified.validUntilSeconds * 1_000) };
}

async function planned(network: SolanaNetwork, memo?: string) {
  const payment = await paid(memo);
  const plan = await network.plan(payment);
  if (plan.state !== 'ready') throw new Error(plan.state);
  return { payment, transaction: await plan.sign(undefined as never) };
}

test('the key is that of wallets on Solana, by SLIP-0010', () => {
  const seed = Buffer.from('000102030405060708090a0b0c0d0e0f', 'hex');
  const vectors: Array<[number[], string]> = [
    [[], '2b4be7f19ee27bbf30c667b642d5f4aa69fd169872f8fc3059c08ebae2eb19e7'],
    [[0], '68e0fe46dfb67e368c75379acec591dad19df3cde26e63b93a8e704f1dade7a3'],
    [[0, 1], 'b1d0bad404bf35da785a64ca1ac54b2617211d2777696fbffaf208f746ae84f2'],
  ];
  for (const [path, expected] of vectors) expect(derive(seed, path).toString('hex')).toBe(expected);
  const message = Buffer.from('a message');
  const x = Buffer.from(base58.decode(key.address)).toString('base64url');
  const publicKey = createPublicKey({ key: { kty: 'OKP', crv: 'Ed25519', x }, format: 'jwk' });
  expect(verify(null, message, publicKey, key.sign(message))).toBe(true);
});

test('a payment is simulated, signed, sent and found, and moves the money once however often it is sent', async () => {
  const network = await open();
  expect(network.isOpen()).toBe(true);
  const { payment, transaction } = await planned(network);
  expect(chain.sent).toEqual([]);
  expect(await network.find(payment, transaction)).toEqual({ state: 'absent' });
  for (let n = 0; n < 3; n += 1) expect(await network.send(payment, transaction)).toEqual({ state: 'sent' });
  const found = await network.find(payment, transaction);
  expect(found).toMatchObject({ state: 'included', hash: transaction.hash });
  expect(new Set(chain.sent)).toEqual(new Set([transaction.hash]));
  expect([await chain.balanceOf(payTo), await chain.balanceOf(payer.address)]).toEqual([10_000n, 40_000n]);
});

test('what would fail is not sent, so that it costs no fee', async () => {
  const network = await open();
  await chain.give(payer.address, 9_999n);
  expect(await network.plan(await paid())).toMatchObject({ state: 'refused', reason: 'insufficient_funds' });
  await chain.give(payer.address, 50_000n);
  const payment = await paid();
  chain.expireBlockhash();
  await expect(network.plan(payment)).rejects.toMatchObject({ reason: 'UNAVAILABLE' });
  expect(chain.sent).toEqual([]);
});

test('a block that no node knows is waited for some seconds after the payment was presented, and not as long as a payment may take', async () => {
  let seconds = 0;
  const presentedAtMs = Date.now();
  const network = await open({ now: () => new Date(presentedAtMs + seconds * 1_000) });
  const payment = { ...(await paid()), validUntil: new Date(presentedAtMs + 150_000) };
  chain.expireBlockhash();
  for (seconds of [0, 10]) await expect(network.plan(payment)).rejects.toMatchObject({ reason: 'UNAVAILABLE' });
  seconds = 11;
  expect(await network.plan(payment)).toMatchObject({ state: 'refused', reason: 'payment_expired' });
  // One whose block is known may be older.
  seconds = 149;
  const known = { ...(await paid()), validUntil: payment.validUntil };
  expect(await network.plan(known)).toMatchObject({ state: 'ready' });
});

test('a transaction that is lost is sent again, and one whose answer is lost is found', async () => {
  const network = await open();
  const lost = await planned(network);
  chain.fault = 'lost';
  await network.send(lost.payment, lost.transaction);
  expect(await network.find(lost.payment, lost.transaction)).toEqual({ state: 'absent' });
  chain.fault = 'refused';
  await expect(network.send(lost.payment, lost.transaction)).rejects.toMatchObject({ reason: 'UNAVAILABLE' });
  chain.fault = 'answer lost';
  await expect(network.send(lost.payment, lost.transaction)).rejects.toMatchObject({ reason: 'UNAVAILABLE' });
  expect(await network.find(lost.payment, lost.transaction)).toMatchObject({ state: 'included' });
  expect(await chain.balanceOf(payTo)).toBe(10_000n);
});

test('one that no block can have any more is given up, by the time of the chain and not by ours', async () => {
  const network = await open();
  const { payment, transaction } = await planned(network);
  const untilSeconds = payment.validUntilSeconds;
  chain.timeSeconds = untilSeconds + 1;
  // Its block is recent still: the chain is slow.
  expect(await network.find(payment, transaction)).toEqual({ state: 'absent' });
  chain.expireBlockhash();
  chain.timeSeconds = untilSeconds;
  // The node may not have that block yet.
  expect(await network.find(payment, transaction)).toEqual({ state: 'absent' });
  chain.timeSeconds = untilSeconds + 1;
  expect(await network.find(payment, transaction)).toMatchObject({ state: 'impossible', reason: 'payment_expired' });
});

test('one that a block has is found also when it could not be included any more, and one that failed is refused', async () => {
  const network = await open();
  const included = await planned(network);
  await network.send(included.payment, included.transaction);
  const failed = await planned(network, 'another quote');
  await chain.give(payer.address, 0n);
  await network.send(failed.payment, failed.transaction);
  chain.expireBlockhash();
  chain.timeSeconds = included.payment.validUntilSeconds + 1_000;
  expect(await network.find(included.payment, included.transaction)).toMatchObject({ state: 'included' });
  expect(await network.find(failed.payment, failed.transaction)).toMatchObject({
    state: 'impossible',
    reason: 'invalid_transaction_state',
  });
});

test('a transaction is included once it is confirmed, and for good from the commitment on that is configured', async () => {
  const [soon, late] = [await open(), await open({ commitment: 'finalized' })];
  for (const [commitment, ...states] of [
    ['processed', 'absent', 'absent'],
    ['confirmed', 'final', 'included'],
    ['finalized', 'final', 'final'],
  ] as const) {
    chain.commitment = commitment;
    chain.expireBlockhash();
    const { payment, transaction } = await planned(soon);
    await soon.send(payment, transaction);
    const found = await Promise.all([soon, late].map((network) => network.find(payment, transaction)));
    const told = found.map((result) => (result.state === 'included' && result.isFinal ? 'final' : result.state));
    expect([commitment, ...told]).toEqual([commitment, ...states]);
  }
});

test('a network closes while it cannot be used, and says why', async () => {
  const other = await chain.serve();
  const several = await open({ urls: ['http://127.0.0.1:1', other, await chain.serve()] });
  expect([several.isOpen(), several.health()]).toMatchObject([true, { status: 'DEGRADED' }]);
  // A second one has to confirm payments.
  const both = await open({ urls: ['http://127.0.0.1:1', other] });
  expect([both.isOpen(), both.health().message]).toEqual([false, expect.stringContaining('only one of its nodes')]);
  const none = await open({ urls: ['http://127.0.0.1:1'] });
  expect([none.isOpen(), none.health().message]).toEqual([false, expect.stringContaining('no node can be asked')]);
  const poor = new SolanaChain();
  stops.push(() => poor.stop());
  const network = await open({ urls: [await poor.serve()] });
  expect([network.isOpen(), network.health().message]).toEqual([
    false,
    expect.stringContaining(`${key.address} has too little`),
  ]);
  poor.airdrop(key.address);
  await network.watch();
  expect([network.isOpen(), network.health().status]).toEqual([true, 'HEALTHY']);
});

test('a node of another network ends the start', async () => {
  const main = new Map([['solana:5eykt4UsFv8P8NJdTREpY1vzqKqZKvdp', urls]]);
  const settings = {
    key,
    timeoutMs: limitMs(5_000),
    commitment: 'confirmed' as const,
    everyMs: 3_600_000,
    now,
    urls: main,
  };
  await expect(openSolanaNetworks(log, settings)).rejects.toThrow(`is of the network ${solanaTest.network}`);
});
