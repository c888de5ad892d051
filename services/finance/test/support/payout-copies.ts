import { mkdtemp } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { bech32 } from '@scure/base';
import { randomBytes } from 'node:crypto';
import type { Pool } from '@granary/shared/postgres/pool';
import type { Chain } from '../../src/chain/chain';
import { accountByName } from '../../src/ledger/kinds';
import { openAccounts } from '../../src/ledger/accounts';
import type { PayoutSigning } from '../../src/payouts/sign-payouts';
import { SimulatedNode, openSimulatedNode } from '../../src/simulated-chain/simulated-node';
import { reliableChain, type SimulatedChainSettings } from '../../src/simulated-chain/settings';
import { addressOf } from '@granary/shared/money/cosmos/address';
import { openKeyFile } from '../../src/wallets/keys';
import type { Wallets } from '../../src/wallets/wallet';
import { log } from './harness';

const prefix = 'celestia';
export const gasPrice = 0.004;

/** A chain whose blocks are produced by the test. */
export const manualChain: SimulatedChainSettings = {
  ...reliableChain,
  prefix,
  denom: 'utia',
  gasPrice,
  blockMs: 0,
};

/** An address that nobody has the key of. */
export const newAddress = (): string => bech32.encode(prefix, bech32.toWords(randomBytes(20)));

export interface PayoutBench {
  node: SimulatedNode;
  wallets: Wallets;
  chainAccount: string;
  /** What a copy of the service pays with. */
  options: PayoutSigning;
}

/** What pays out, without the service around it, on a chain that behaves as `settings` say. */
export async function openPayoutBench(
  pool: Pool,
  settings: Partial<SimulatedChainSettings> = {},
  random?: () => number,
): Promise<PayoutBench> {
  const keys = await openKeyFile(join(await mkdtemp(join(tmpdir(), 'granary-payouts-')), 'seed'), { create: true });
  const node = await openSimulatedNode({ pool, settings: { ...manualChain, ...settings }, ...(random && { random }) });
  const chainAccount = `chain:${node.id}`;
  await openAccounts(pool, [accountByName(chainAccount)!, accountByName('platform:cost')!]);
  const sender = addressOf(await keys.publicKey('hot'), prefix);
  return {
    node,
    wallets: { pool, keys, addressPrefix: prefix },
    chainAccount,
    options: { pool, chain: node, keys, log, sender, denom: 'utia', gasPrice, timeoutBlocks: 5 },
  };
}

/** The process was killed at a call of the chain: what it had committed is there, and nothing else happens. */
export class Crash extends Error {}

/** A chain as a process sees it that crashes with the given probability before each call, and after it. */
export function crashing(chain: Chain, probability: number, random: () => number): Chain {
  const crash = () => {
    if (random() < probability) throw new Crash('killed');
  };
  const around = async <T>(call: () => Promise<T>): Promise<T> => {
    crash();
    const result = await call();
    crash();
    return result;
  };
  return {
    id: chain.id,
    height: () => around(() => chain.height()),
    account: (address) => around(() => chain.account(address)),
    balance: (address) => around(() => chain.balance(address)),
    broadcast: (bytes) => around(() => chain.broadcast(bytes)),
    find: (hash) => around(() => chain.find(hash)),
    transfers: (from, to) => chain.transfers(from, to),
  };
}
