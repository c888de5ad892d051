import type { Check } from '@granary/shared/health/check';
import type { Logger } from '@granary/shared/logger';
import type { Pool } from '@granary/shared/postgres/pool';
import { startScheduledTask } from '@granary/shared/postgres/scheduled-task';
import type { RpcUrls } from '../../networks/rpc-urls-setting';
import type { NodePool } from '../../networks/node-pool';
import { openNodes } from '../../networks/open-nodes';
import { watchNetwork } from '../../networks/watch-network';
import { EvmNetwork } from './network';
import { EvmNode, type EvmBlock } from './node';
import { openGasKey, type GasKey } from './gas-key';
import { Transactions } from './transactions';

const lagMaxBlocks = 10n;
/** How many blocks the average time of a block is measured over. */
const measuredBlocks = 10n;

export interface EvmSettings {
  urls: RpcUrls;
  keyFile: string;
  timeoutMs: number;
  depthBlocks: number;
  replaceAfterMs: number;
  /** The most that a unit of gas may cost on a network, in wei. */
  maxFeeOn: (network: string) => bigint;
  /** How long a request waits for the block of its payment. */
  waitMs: number;
  /** How often it is looked whether the nodes answer, the account can pay gas, and its transactions are included. */
  everyMs: number;
}

export interface EvmNetworks {
  networks: EvmNetwork[];
  /** Pays the gas on all of them. */
  address: string;
  checks: Record<string, Check>;
  stop(): Promise<void>;
}

/**
 * Opens the EVM networks behind their nodes. Throws a StartError when a node that answers is of another network, and a
 * KeyFileError; a node that does not answer is asked again later.
 */
export async function openEvmNetworks(pool: Pool, log: Logger, settings: EvmSettings): Promise<EvmNetworks> {
  const key = await openGasKey(settings.keyFile);
  const networks = await Promise.all(
    [...settings.urls].map(([id, urls]) => openNetwork(pool, log, { ...settings, id, urls, key })),
  );
  const tasks = networks.map((network) => startTasks(network, pool, log, settings.everyMs));
  const checks = networks.map((network): [string, Check] => [network.id, () => Promise.resolve(network.health())]);
  return {
    networks,
    address: key.address,
    checks: Object.fromEntries(checks),
    stop: async () => {
      await Promise.all(tasks.map((task) => task.stop()));
    },
  };
}

async function openNetwork(
  pool: Pool,
  log: Logger,
  {
    id,
    urls,
    key,
    timeoutMs,
    ...settings
  }: Omit<EvmSettings, 'urls'> & { id: string; urls: readonly string[]; key: GasKey },
): Promise<EvmNetwork> {
  const options = { network: id, lagMaxBlocks, urls, setting: 'EVM_RPC_URLS', timeoutMs, log };
  const nodes = await openNodes<EvmBlock, EvmNode>((rpc) => new EvmNode(rpc), options);
  const network = new EvmNetwork({
    id,
    nodes,
    key,
    log,
    replaceAfterMs: settings.replaceAfterMs,
    transactions: new Transactions(pool, id, key.address),
    depthBlocks: BigInt(settings.depthBlocks),
    maxFeePerGas: settings.maxFeeOn(id),
  });
  await network.watch();
  await warnOfShortWait(nodes, log, { id, waitMs: settings.waitMs });
  return network;
}

/**
 * A request that waits for less than a block is answered without what it has paid for, again and again. Never rejects.
 */
async function warnOfShortWait(
  nodes: NodePool<EvmBlock, EvmNode>,
  log: Logger,
  { id, waitMs }: { id: string; waitMs: number },
): Promise<void> {
  const readBlockMs = async (node: EvmNode, latest: EvmBlock) => {
    if (latest.height < measuredBlocks) return 0;
    const earlier = await node.block(latest.height - measuredBlocks);
    return (Number(latest.timestampSeconds - earlier.timestampSeconds) * 1_000) / Number(measuredBlocks);
  };
  const blockMs = await nodes.ask(readBlockMs).catch(() => 0);
  if (waitMs >= blockMs) return;
  log.warn(
    { network: id, blockMs, X402_SETTLE_WAIT_MS: waitMs },
    'requests wait for less than a block for their payments',
  );
}

/** Every process looks for itself; one at a time keeps the nonces moving. */
function startTasks(network: EvmNetwork, pool: Pool, log: Logger, everyMs: number): { stop(): Promise<void> } {
  const watch = watchNetwork(network, everyMs);
  const nonces = startScheduledTask({
    pool,
    log,
    name: `nonces of ${network.id}`,
    everyMs,
    run: () => network.keepNonces(),
  });
  return {
    stop: async () => {
      await Promise.all([watch.stop(), nonces.stop()]);
    },
  };
}
