import { sign } from 'node:crypto';
import type { KeyPairSigner } from '@solana/kit';
import { SolanaChain } from '@granary/testing/solana-chain';
import { paySolana, solanaEnvelope, solanaSigner } from '@granary/testing/solana-client';
import { parseSolanaAssets } from '../src/schemes/solana/assets';
import type { SolanaProof } from '../src/schemes/solana/verify';
import { readEnvelope } from '../src/verify/envelope';
import { Verifier } from '../src/verify/verifier';
import {
  at,
  bytesOf,
  computeLimit,
  computePrice,
  keys,
  newDraft,
  requirement,
  transactionOf,
  type Draft,
} from './support/solana-draft';
import { SolanaExact } from '../src/schemes/solana/verify';

const verifier = new Verifier(
  [new SolanaExact({ assets: parseSolanaAssets('usdc-test'), feePayers: [keys.feePayer.address] })],
  () => new Date(),
);

/** Signs as the payer of the fee and executes it. Undefined: it has succeeded. */
function execute({ transaction }: SolanaProof): string | undefined {
  const bytes = Buffer.from(transaction, 'base64');
  bytes.set(sign(null, bytes.subarray(1 + 2 * 64), keys.feePayer.secret), 1);
  return chain.execute(bytes);
}

const proofOf = async (envelope: object): Promise<SolanaProof> => {
  const { verified } = await verifier.verifyEnvelope(readEnvelope(Buffer.from(JSON.stringify(envelope))));
  return verified.proof as SolanaProof;
};

let chain: SolanaChain;
beforeEach(async () => {
  chain = new SolanaChain();
  chain.airdrop(keys.feePayer.address);
  await chain.give(keys.payTo.address, 0n);
});

test('a payment of the official client that is valid here moves the money on the chain, once', async () => {
  const url = await chain.serve();
  const payer: KeyPairSigner = await solanaSigner(1);
  await chain.give(payer.address, 50_000n);
  for (const version of [1, 2] as const) {
    const extra = { feePayer: keys.feePayer.address, memo: `quote-${version}` };
    const proof = await proofOf(await paySolana(version, payer, url, { payTo: keys.payTo.address, extra }));
    expect(execute(proof)).toBeUndefined();
    expect(execute(proof)).toBeDefined();
    expect(await chain.balanceOf(keys.payTo.address)).toBe(BigInt(version) * 10_000n);
  }
  expect(await chain.balanceOf(payer.address)).toBe(30_000n);
  await chain.stop();
});

test('each form of a payment that is valid here is executed by the chain, and its other signatures are not', async () => {
  await chain.give(keys.payer.address, 50_000n);
  const forms: Array<(draft: Draft) => unknown> = [
    () => {},
    (draft) => (draft.version = undefined),
    ({ instructions }) => (instructions[0]!.data = computeLimit(200_000)),
    ({ instructions }) => (instructions[1]!.data = computePrice(5_000_000n)),
    ({ instructions }) => (instructions[3]!.accounts = [at.payer]),
  ];
  for (const [nth, form] of forms.entries()) {
    const draft = { ...(await newDraft()), blockhash: bytesOf(chain.blockhash()) };
    form(draft);
    const proof = await proofOf(solanaEnvelope(2, requirement(), transactionOf(draft).toString('base64')));
    const forged = Buffer.from(proof.transaction, 'base64');
    forged[70]! ^= 1;
    expect(execute({ ...proof, transaction: forged.toString('base64') })).toBeDefined();
    expect([nth, execute(proof)]).toEqual([nth, undefined]);
    expect(await chain.balanceOf(keys.payTo.address)).toBe(BigInt(nth + 1) * 10_000n);
  }
});
