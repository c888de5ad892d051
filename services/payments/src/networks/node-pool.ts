import { Cooldowns } from '@granary/shared/concurrency/cooldowns';
import { unavailable } from '@granary/shared/errors';
import { NodeFailure, RpcError } from '@granary/shared/http/json-rpc';

/** How long another node is preferred to one that failed. */
const cooldownMs = 15_000;

/** Why a network is closed of whose several nodes one answers. */
export const oneNode = 'only one of its nodes answers, and a second one has to confirm payments: none are taken';

/** A block, with its height. */
export interface Block {
  height: bigint;
}

/** A node of a network. Its methods throw a NodeFailure, or an RpcError when the node refuses. */
export interface NetworkNode<B extends Block> {
  readonly name: string;
  /** The CAIP-2 name of its network. */
  networkId(): Promise<string>;
  latest(): Promise<B>;
}

export interface NodePoolOptions {
  /** CAIP-2. */
  network: string;
  /** A node is not asked when it is so many blocks behind another one. */
  lagMaxBlocks: bigint;
}

/**
 * The nodes of one network. A node that fails is asked after the others for a while; one that is not of the network,
 * never.
 */
export class NodePool<B extends Block, N extends NetworkNode<B>> {
  private readonly cooldowns = new Cooldowns(cooldownMs);
  private readonly problemOf = new Map<N, string>();
  private readonly ofThisNetwork = new Set<N>();
  private readonly latestOf = new Map<N, { block: Promise<B>; atMs: number }>();
  private bestHeight = 0n;
  private answering = 0;

  constructor(
    private readonly nodes: readonly N[],
    private readonly options: NodePoolOptions,
  ) {}

  /**
   * Whether as many nodes have answered `compare` as it takes: where there are several, a second one confirms what one
   * says.
   */
  get canConfirm(): boolean {
    return this.answering >= Math.min(this.nodes.length, 2);
  }

  /** A sentence for each node that could not be asked the last time. */
  get problems(): string[] {
    return this.nodes.flatMap((node) => this.problemOf.get(node) ?? []);
  }

  /**
   * The result of `work` with one node and its latest block, so that all its answers come from the same node. When the
   * node fails or refuses, `work` is repeated with the next one. Throws UNAVAILABLE after the last one.
   *
   * @param maxAgeMs How long ago the node may have named its latest block, so that many who ask share the answer.
   */
  ask<T>(work: (node: N, latest: B) => Promise<T>, maxAgeMs = 0): Promise<T> {
    return this.askOneOf(this.nodes, work, maxAgeMs);
  }

  /**
   * Whether a node other than `source` confirms what `source` has said; true where there is no other. Throws
   * UNAVAILABLE when no other one can be asked.
   */
  async confirm(source: N, isSo: (node: N, latest: B) => Promise<boolean>): Promise<boolean> {
    const others = this.nodes.filter((node) => node !== source);
    return others.length === 0 || this.askOneOf(others, isSo, 0);
  }

  private async askOneOf<T>(
    nodes: readonly N[],
    work: (node: N, latest: B) => Promise<T>,
    maxAgeMs: number,
  ): Promise<T> {
    let failure: unknown;
    for (const node of this.cooldowns.order(nodes, ({ name }) => name)) {
      try {
        const latest = await this.recentLatest(node, maxAgeMs);
        if (latest.height + this.options.lagMaxBlocks < this.bestHeight)
          throw new NodeFailure(`${node.name} is behind the others`);
        const result = await work(node, latest);
        this.problemOf.delete(node);
        return result;
      } catch (error) {
        if (!(error instanceof NodeFailure) && !(error instanceof RpcError)) throw error;
        failure = error;
        // The text of a node's refusal may contain details that only the operator should see.
        this.problemOf.set(node, error instanceof NodeFailure ? error.message : `${node.name} refuses a call`);
        this.cooldowns.begin(node.name);
      }
    }
    throw unavailable(`No node of ${this.options.network} can be asked`, failure);
  }

  /** Asks each node for its height, so that one that is behind the others is known. */
  async compare(): Promise<void> {
    const blocks = await Promise.all(this.nodes.map((node) => this.latest(node).catch(() => undefined)));
    this.answering = blocks.filter((block) => block !== undefined).length;
    this.bestHeight = blocks.reduce((best, block) => (block && block.height > best ? block.height : best), 0n);
  }

  /** Why nodes that answer are not of this network; `onFailure` is called for those that do not answer. */
  async wrongNodes(onFailure: (error: unknown) => void): Promise<string[]> {
    const problems = await Promise.all(
      this.nodes.map((node) =>
        this.wrongNetwork(node).catch((error: unknown) => {
          onFailure(error);
          return undefined;
        }),
      ),
    );
    return problems.filter((problem) => problem !== undefined);
  }

  /** Why a node that answers is not of this network. Throws a NodeFailure of one that does not answer. */
  private async wrongNetwork(node: N): Promise<string | undefined> {
    const networkId = await node.networkId();
    if (networkId !== this.options.network) return `${node.name} is of the network ${networkId}`;
    this.ofThisNetwork.add(node);
    return undefined;
  }

  private recentLatest(node: N, maxAgeMs: number): Promise<B> {
    const recent = this.latestOf.get(node);
    const nowMs = performance.now();
    if (recent && nowMs - recent.atMs < maxAgeMs) return recent.block;
    const block = this.latest(node);
    this.latestOf.set(node, { block, atMs: nowMs });
    return block;
  }

  private async latest(node: N): Promise<B> {
    const problem = this.ofThisNetwork.has(node) ? undefined : await this.wrongNetwork(node);
    if (problem !== undefined) throw new NodeFailure(problem);
    return node.latest();
  }
}
