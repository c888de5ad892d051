import { JsonRpc } from '@granary/shared/http/json-rpc';
import type { Logger } from '@granary/shared/logger';
import { StartError } from '@granary/shared/start-error';
import { NodePool, type Block, type NetworkNode, type NodePoolOptions } from './node-pool';

export interface OpenNodesOptions extends NodePoolOptions {
  urls: readonly string[];
  /** The setting that has the URLs, for errors. */
  setting: string;
  timeoutMs: number;
  log: Logger;
}

/**
 * Opens the nodes of a network. Throws a StartError when a node that answers is of another network; one that does not
 * answer is asked again later.
 */
export async function openNodes<B extends Block, N extends NetworkNode<B>>(
  newNode: (rpc: JsonRpc) => N,
  { urls, setting, timeoutMs, log, ...options }: OpenNodesOptions,
): Promise<NodePool<B, N>> {
  const { network } = options;
  const nodes = urls.map((url, index) =>
    newNode(new JsonRpc({ url, timeoutMs, name: `node ${index + 1} of ${network}` })),
  );
  const pool = new NodePool<B, N>(nodes, options);
  const wrong = await pool.wrongNodes((error) =>
    log.warn({ err: error, network }, 'a node cannot be used, it is asked again later'),
  );
  if (wrong.length > 0) throw new StartError(`${setting}: ${wrong.join('; ')}`);
  return pool;
}
