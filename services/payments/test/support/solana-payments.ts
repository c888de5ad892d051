import { randomBytes } from 'node:crypto';
import { type Pool } from '@granary/shared/postgres/pool';
import { SolanaChain } from '@granary/testing/solana-chain';
import { solanaTest } from '@granary/testing/solana-client';
import { limitMs } from '@granary/testing/speed';
import type { Requirement } from '@granary/testing/x402-client';
import type { SettlementNetwork } from '../../src/networks/settlement-network';
import { requirementText } from '../../src/quotes/offer';
import { offersFor } from '../../src/quotes/offers';
import { solanaMethods } from '../../src/schemes/solana/methods';
import { setRates } from '../../src/quotes/rates';
import { parseSolanaAssets, solanaAssetKeyOf } from '../../src/schemes/solana/assets';
import { feeKeyOf } from '../../src/schemes/solana/fee-key';
import { openSolanaNetworks } from '../../src/schemes/solana/open-networks';
import { Verifier } from '../../src/verify/verifier';
import { copyOf, log, type Copy, type CopyOptions } from './evm-payments';
import { openPaymentsPool } from './payments-pool';
import { at, bytesOf, keys, newDraft, TestKey, tokenAccountOf, transactionOf, transferChecked } from './solana-draft';
import { SolanaExact } from '../../src/schemes/solana/verify';

export const amount = 250_000n;
const feeKey = feeKeyOf(Buffer.alloc(64, 5));
const feeFunds = 1_000_000_000_000n;
const assets = parseSolanaAssets('usdc-test');
const now = () => new Date();
const verifier = new Verifier([new SolanaExact({ assets, feePayers: [feeKey.address] })], now);

/** A chain with the account that pays fees, its network, and a database. */
export interface SolanaPlace {
  chain: SolanaChain;
  network: SettlementNetwork;
  pool: Pool;
  payTo: string;
  stop(): Promise<void>;
}

export async function openSolanaPlace(): Promise<SolanaPlace> {
  const chain = new SolanaChain();
  chain.airdrop(feeKey.address, feeFunds);
  const payTo = keys.payTo.address;
  await chain.give(payTo, 0n);
  const opened = await openSolanaNetworks(log, {
    key: feeKey,
    timeoutMs: limitMs(5_000),
    commitment: 'confirmed',
    everyMs: 3_600_000,
    now,
    urls: new Map([[solanaTest.network, [await chain.serve()]]]),
  });
  const pool = await openPaymentsPool(10);
  await setRates(pool, new Map([[solanaAssetKeyOf(assets[0]!), 1_000_000n]]));
  const stop = async () => {
    await opened.stop();
    await chain.stop();
    await pool.end();
  };
  return { chain, network: opened.networks[0]!, pool, payTo, stop };
}

/** A process of the service. */
export function newSolanaCopy(
  { pool, payTo }: Pick<SolanaPlace, 'pool' | 'payTo'>,
  network: SettlementNetwork,
  options: CopyOptions = {},
): Copy {
  const to = { network: solanaTest.network, address: payTo };
  const methods = () => solanaMethods([to], assets, feeKey.address);
  return copyOf({ pool, network, methods, verifier }, options);
}

/** A payer with so much of the token. */
export async function newSolanaPayer({ chain }: SolanaPlace, units: bigint): Promise<TestKey> {
  const payer = new TestKey(randomBytes(16).toString('hex'));
  await chain.give(payer.address, units);
  return payer;
}

/** The request with a payment by the payer for a quote of its own. */
export async function solanaPayment({ chain }: SolanaPlace, { offers }: Copy, payer: TestKey) {
  const purchase = { appId: 'films', requestHash: randomBytes(32), amountUtia: amount.toString(), isUpfront: false };
  const [offer] = await offersFor(offers, purchase);
  const accepted = JSON.parse(requirementText(2, offer!)) as Requirement;
  const draft = await newDraft();
  draft.signers = [payer];
  draft.blockhash = bytesOf(chain.blockhash());
  draft.accounts[at.feePayer] = bytesOf(feeKey.address);
  draft.accounts[at.payer] = payer.bytes;
  draft.accounts[at.source] = await tokenAccountOf(payer.address);
  draft.instructions[2]!.data = transferChecked(BigInt(accepted.amount!));
  draft.instructions[3]!.data = Buffer.from(accepted.extra['memo'] as string);
  const payload = { transaction: transactionOf(draft).toString('base64') };
  return { purchase, identifier: '', paymentJson: Buffer.from(JSON.stringify({ x402Version: 2, accepted, payload })) };
}
