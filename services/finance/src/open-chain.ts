import { healthy, type Finding } from '@granary/shared/health/check';
import type { Logger } from '@granary/shared/logger';
import type { Pool } from '@granary/shared/postgres/pool';
import type { Chain } from './chain/chain';
import type { FinanceConfig } from './config';
import { openAccounts } from './ledger/accounts';
import { accountByName } from './ledger/kinds';
import type { PayoutSigning } from './payouts/sign-payouts';
import { openSimulatedNode, type SimulatedNode } from './simulated-chain/simulated-node';
import { reliableChain } from './simulated-chain/settings';
import { addressOf } from './wallets/address';
import type { KeyProvider } from './wallets/keys';

const denom = 'utia';
/** What the hot wallet of the simulated chain has from the beginning, for fees. */
const genesisUtia = 1_000_000_000n;
/** A transaction that is not included in so many blocks expires. */
const timeoutBlocks = 50;

/** The chain with what transactions are signed with. */
export interface OpenChain {
  node: SimulatedNode;
  /** The account of the ledger that stands for the world behind the chain. */
  account: string;
  signing: PayoutSigning;
}

/** Opens the chain that the configuration names, with the accounts of the ledger that it needs. */
export async function openChain(pool: Pool, keys: KeyProvider, config: FinanceConfig, log: Logger): Promise<OpenChain> {
  const { ADDRESS_PREFIX: prefix } = config;
  const gasPrice = Number(config.CHAIN_GAS_PRICE);
  const sender = addressOf(await keys.publicKey('hot'), prefix);
  const node = await openSimulatedNode({
    pool,
    genesis: { address: sender, amount: genesisUtia },
    settings: {
      ...reliableChain,
      prefix,
      denom,
      gasPrice,
      blockMs: config.SIMULATED_BLOCK_MS,
      loss: config.SIMULATED_LOSS_PERCENT / 100,
      eviction: config.SIMULATED_EVICTION_PERCENT / 100,
      delayBlocks: config.SIMULATED_DELAY_BLOCKS,
    },
  });
  const account = `chain:${node.id}`;
  await openAccounts(pool, [accountByName(account)!, accountByName('platform:cost')!]);
  return { node, account, signing: { pool, chain: node, keys, log, sender, denom, gasPrice, timeoutBlocks } };
}

/** Says that the chain is simulated, so that nobody takes it for a real one. It is a part of the database, so it is not called. */
export const chainFinding = (chain: Chain): Finding => ({
  ...healthy,
  message: `${chain.id} is simulated: what is paid there is no money`,
});
