import type { Logger } from '@granary/shared/logger';
import { degraded, healthy, type Check, type Finding } from '@granary/shared/health/check';
import { row, rows, type Pool } from '@granary/shared/postgres/pool';
import { sql } from '@granary/shared/postgres/sql';
import { StartError } from '@granary/shared/start-error';
import { CometNode } from './comet-node';
import { CometNodes } from './comet-nodes';
import { CosmosChain } from './cosmos-chain';
import { JsonRpc, RpcError } from '@granary/shared/http/json-rpc';

export interface CosmosSettings {
  urls: readonly string[];
  chainId: string;
  denom: string;
  prefix: string;
  timeoutMs: number;
  statusTtlMs?: number;
}

/** When more blocks than this are unread, health reports that they were not read for deposits. */
const unreadMax = 100n;
/** Shorter than the time between two blocks. */
const defaultStatusTtlMs = 500;

/** A node that is configured is of another chain, or keeps too little. */
export class ChainNodeError extends StartError {
  override readonly name = 'ChainNodeError';
}

/**
 * The chain behind the nodes. Throws a ChainNodeError when a node that answers is of another chain or cannot serve what
 * finance needs; one that does not answer is asked again later.
 */
export async function openCosmosChain(
  pool: Pool,
  { urls, chainId, timeoutMs, statusTtlMs = defaultStatusTtlMs, ...settings }: CosmosSettings,
  log: Logger,
): Promise<{ chain: CosmosChain; check: Check; nodes: CometNodes }> {
  const nodes = urls.map((url, index) => new CometNode(new JsonRpc({ url, timeoutMs, name: `node ${index + 1}` })));
  const problems = await Promise.all(nodes.map((node) => findProblem(node, chainId, log)));
  const reasons = problems.filter((problem) => problem !== undefined);
  if (reasons.length > 0) throw new ChainNodeError(`CHAIN_RPC_URLS: ${reasons.join('; ')}`);
  const pooled = new CometNodes(nodes, chainId, statusTtlMs);
  const ours = (addresses: readonly string[]) => findOurs(pool, addresses);
  return {
    chain: new CosmosChain({ ...settings, nodes: pooled, ours }),
    check: () => health(pool, pooled),
    nodes: pooled,
  };
}

/** Why finance must not start with the node, if that is known. */
async function findProblem(node: CometNode, chainId: string, log: Logger): Promise<string | undefined> {
  try {
    const status = await node.status();
    if (status.chainId !== chainId) return `${node.name} is of the chain ${status.chainId}, CHAIN_ID is ${chainId}`;
    if (!status.hasIndex) return `${node.name} has no index of transactions: set indexer = "kv" in its config.toml`;
    if (status.height > 1n) await node.blockResults(status.height - 1n);
  } catch (error) {
    if (error instanceof RpcError) {
      return `${node.name} does not serve the results of its last block: set discard_abci_responses = false in its config.toml. It says: ${error.data}`;
    }
    log.warn({ err: error }, 'a node of the chain cannot be used, it is asked again later');
  }
  return undefined;
}

/** Addresses of wallets, and those that send transactions. */
async function findOurs(pool: Pool, addresses: readonly string[]): Promise<ReadonlySet<string>> {
  const matches = await rows<{ address: string }>(
    pool,
    sql`select address from wallet where address = any(${[...addresses]})
        union select address from chain_sender where address = any(${[...addresses]})`,
  );
  return new Set(matches.map(({ address }) => address));
}

/** The block up to which deposits have been credited. */
async function readHeight(pool: Pool, chainId: string): Promise<bigint> {
  const watch = await row<{ height: bigint }>(pool, sql`select height from chain_watch where chain_id = ${chainId}`);
  return watch?.height ?? 0n;
}

async function health(pool: Pool, nodes: CometNodes): Promise<Finding> {
  const [first] = await nodes.ready().catch(() => []);
  const problems = nodes.problems.join('; ');
  if (!first) {
    return degraded(`${nodes.chainId}: no node can be asked, deposits and payouts wait: ${problems}`);
  }
  const unread = first.status.height - (await readHeight(pool, nodes.chainId));
  if (unread > unreadMax) return degraded(`${nodes.chainId}: ${unread} blocks have not been read for deposits`);
  if (problems !== '') return degraded(`${nodes.chainId}: ${problems}`);
  return { ...healthy, message: `${nodes.chainId}, nodes: ${nodes.count}` };
}
