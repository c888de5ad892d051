import type { Check } from '@granary/shared/health/check';
import type { Logger } from '@granary/shared/logger';
import { openNodes } from '../../networks/open-nodes';
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

/**
 * Opens the networks of Solana behind their nodes. Throws a StartError when a node that answers is of another network;
 * a node that does not answer is asked again later.
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
  const options = { network: id, lagMaxBlocks, urls, setting: 'SOLANA_RPC_URLS', timeoutMs, log };
  const nodes = await openNodes((rpc) => new SolanaNode(rpc), options);
  const network = new SolanaNetwork({ id, nodes, key, commitment, log, now });
  await network.watch();
  return network;
}
