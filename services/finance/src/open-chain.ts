import { healthy, type Check } from '@granary/shared/health/check';
import type { Logger } from '@granary/shared/logger';
import { row, type Pool } from '@granary/shared/postgres/pool';
import { sql } from '@granary/shared/postgres/sql';
import { NotAvailableError, StartError } from '@granary/shared/start-error';
import type { Chain } from './chain/chain';
import { nodeUrlsOf, type FinanceConfig } from './config';
import { cosmosGrants } from './cosmos-chain/cosmos-grants';
import { openCosmosChain } from './cosmos-chain/open-cosmos-chain';
import { NodeFailure } from '@granary/shared/http/json-rpc';
import { beginWatch } from './deposits/credit-deposits';
import { openAccounts } from './ledger/accounts';
import { accountByName } from './ledger/kinds';
import type { PayoutSigning } from './payouts/sign-payouts';
import type { ChainGrants } from './chain/chain-grants';
import { simulatedGrants } from './simulated-chain/simulated-grants';
import { openFaucet, type Faucet } from './simulated-chain/faucet';
import { openSimulatedNode } from './simulated-chain/simulated-node';
import { reliableChain } from './simulated-chain/settings';
import { addressOf } from '@granary/shared/money/cosmos/address';
import type { KeyProvider } from './wallets/keys';

/** The initial balance of the hot wallet on the simulated chain, for fees. */
const genesisUtia = 1_000_000_000n;
/** A transaction that is not included in so many blocks expires. */
const timeoutBlocks = 50;
/** Blocks that come faster are looked for this often. */
const fastestMs = 100;
/** How often the nodes of a real chain are asked for its next block. */
const cosmosEveryMs = 2_000;

interface KindOfChain {
  chain: Chain;
  check: Check;
  /** The grants that users have given the broker. */
  grants: ChainGrants;
  /** The faucet, which only the simulated chain has. */
  faucet?: Faucet;
  /** How often the next block is looked for. */
  everyMs: number;
}

/** The chain with what transactions are signed with. */
export interface OpenChain extends KindOfChain {
  /** The account of the ledger that stands for the world behind the chain. */
  account: string;
  signing: PayoutSigning;
  /** The address to which users give grants. */
  broker: string;
}

/** The money in the database is that of another chain. */
export class ChainOriginError extends StartError {
  override readonly name = 'ChainOriginError';
}

/**
 * Opens the chain that the configuration names, with the accounts of the ledger that it needs. Throws a
 * ChainOriginError when the database has been used with another one, a ChainNodeError when a node is of another one,
 * and at the first start a NotAvailableError when no node answers: deposits are looked for from its height on.
 */
export async function openChain(pool: Pool, keys: KeyProvider, config: FinanceConfig, log: Logger): Promise<OpenChain> {
  const sender = addressOf(await keys.publicKey('hot'), config.ADDRESS_PREFIX);
  await assertChainOrigin(pool, config);
  const broker = addressOf(await keys.publicKey('broker'), config.ADDRESS_PREFIX);
  const addresses = { sender, broker };
  const opened =
    config.CHAIN === 'cosmos'
      ? await openCosmos(pool, config, log, addresses)
      : await openSimulated(pool, config, addresses);
  const { chain } = opened;
  try {
    await beginWatch({ pool, chain });
  } catch (error) {
    if (!(error instanceof NodeFailure)) throw error;
    throw new NotAvailableError(`No node of CHAIN_RPC_URLS can be asked: ${error.message}`, { cause: error });
  }
  const account = `chain:${chain.id}`;
  await openAccounts(pool, [accountByName(account)!, accountByName('platform:cost')!]);
  const gasPrice = Number(config.CHAIN_GAS_PRICE);
  const signing = { pool, chain, keys, log, sender, denom: config.CHAIN_DENOM, gasPrice, timeoutBlocks };
  return { ...opened, account, signing, broker };
}

/** The addresses of the hot wallet and the broker. */
interface Addresses {
  sender: string;
  broker: string;
}

async function openCosmos(
  pool: Pool,
  config: FinanceConfig,
  log: Logger,
  { sender, broker }: Addresses,
): Promise<KindOfChain> {
  const settings = {
    urls: nodeUrlsOf(config),
    chainId: config.CHAIN_ID!,
    denom: config.CHAIN_DENOM,
    prefix: config.ADDRESS_PREFIX,
    timeoutMs: config.CHAIN_RPC_TIMEOUT_MS,
  };
  const { nodes, ...opened } = await openCosmosChain(pool, settings, log);
  const grants = cosmosGrants({ nodes, denom: config.CHAIN_DENOM, grantee: broker, hotWallet: sender });
  return { ...opened, grants, everyMs: cosmosEveryMs };
}

async function openSimulated(pool: Pool, config: FinanceConfig, { sender, broker }: Addresses): Promise<KindOfChain> {
  const node = await openSimulatedNode({
    pool,
    genesis: { address: sender, amount: genesisUtia },
    settings: {
      ...reliableChain,
      prefix: config.ADDRESS_PREFIX,
      denom: config.CHAIN_DENOM,
      gasPrice: Number(config.CHAIN_GAS_PRICE),
      memoBytesMax: config.CHAIN_MEMO_BYTES_MAX,
      blockMs: config.SIMULATED_BLOCK_MS,
      loss: config.SIMULATED_LOSS_PERCENT / 100,
      eviction: config.SIMULATED_EVICTION_PERCENT / 100,
      delayBlocks: config.SIMULATED_DELAY_BLOCKS,
    },
  });
  // It pays fees too, also on a chain that is older than grants.
  if (!(await node.account(broker))) await node.fund(broker, genesisUtia);
  // It is a part of the database, so it is not called.
  const finding = { ...healthy, message: `${node.id} is simulated: what is paid there is no money` };
  return {
    chain: node,
    check: () => Promise.resolve(finding),
    grants: simulatedGrants(node, broker),
    faucet: openFaucet(node, config.FAUCET_UTIA_MAX),
    everyMs: Math.max(fastestMs, config.SIMULATED_BLOCK_MS),
  };
}

/** Money that was credited from one chain must not be paid out on another, least of all on a real one. */
async function assertChainOrigin(pool: Pool, { CHAIN, CHAIN_ID }: FinanceConfig): Promise<void> {
  const isOther =
    CHAIN === 'cosmos' ? sql`chain_id <> ${CHAIN_ID!}` : sql`chain_id not in (select chain_id from simulated_chain)`;
  const other = await row<{ id: string }>(pool, sql`select chain_id as id from chain_watch where ${isOther} limit 1`);
  if (!other) return;
  const configured = CHAIN === 'cosmos' ? `CHAIN_ID=${CHAIN_ID!}` : 'CHAIN=simulated';
  throw new ChainOriginError(
    `The money in this database is that of the chain ${other.id}, but ${configured} is set. A database belongs to one chain: set back what was changed, or start with an empty database`,
  );
}
