import type { Check } from '@granary/shared/health/check';
import { JsonRpc } from '@granary/shared/http/json-rpc';
import type { Logger } from '@granary/shared/logger';
import { StartError } from '@granary/shared/start-error';
import { NodePool } from '../../networks/node-pool';
import { watchNetwork } from '../../networks/watch-network';
import type { RpcUrls } from '../../networks/rpc-urls-setting';
import type { FeeKey } from './fee-key';
import { SolanaNetwork } from './network';
import { SolanaNode, type Commitment } from './node';

/** How many blocks a node may be behind another one: 20 seconds, at 0.4 seconds for a block. */
const lagMaxBlocks = 50n;

export interface SolanaSettings {
  urls: RpcUrls;
  key: FeeKey;
  timeoutMs: number;
  commitment: Commitment;
  /** How often it is looked whether the nodes answer and the account can pay fees. */
  everyMs: number;
  now: () => Date;
}

export interface SolanaNetworks {
  networks: SolanaNetwork[];
  checks: Record<string, Check>;
  stop(): Promise<void>;
}

/** A node that is configured is of another network. */
export class SolanaNodeError extends StartError {
  override readonly name = 'SolanaNodeError';
}

/**
 * Opens the networks of Solana behind their nodes. Throws a SolanaNodeError when a node that answers is of another
 * network; a node that does not answer is asked again later.
 */
export async function openSolanaNetworks(log: Logger, settings: SolanaSettings): Promise<SolanaNetworks> {
  const networks = await Promise.all(
    [...settings.urls].map(([id, urls]) => openNetwork(log, { ...settings, id, urls })),
  );
  const watches = networks.map((network) => watchNetwork(network, settings.everyMs));
  const checks = networks.map((network): [string, Check] => [network.id, () => Promise.resolve(network.health())]);
  return {
    networks,
    checks: Object.fromEntries(checks),
    stop: async () => {
      await Promise.all(watches.map((watch) => watch.stop()));
    },
  };
}

async function openNetwork(
  log: Logger,
  { id, urls, key, timeoutMs, commitment, now }: Omit<SolanaSettings, 'urls'> & { id: string; urls: readonly string[] },
): Promise<SolanaNetwork> {
  const nodes = urls.map(
    (url, index) => new SolanaNode(new JsonRpc({ url, timeoutMs, name: `node ${index + 1} of ${id}` })),
  );
  const pool = new NodePool(nodes, { network: id, lagMaxBlocks });
  const wrong = await pool.wrongNodes((error) =>
    log.warn({ err: error }, 'a node of a network of Solana cannot be used, it is asked again later'),
  );
  if (wrong.length > 0) throw new SolanaNodeError(`SOLANA_RPC_URLS: ${wrong.join('; ')}`);
  const network = new SolanaNetwork({ id, nodes: pool, key, commitment, log, now });
  await network.watch();
  return network;
}
