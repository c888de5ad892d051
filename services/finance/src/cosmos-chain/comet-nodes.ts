import { Cooldowns } from '@granary/shared/concurrency/cooldowns';
import { TtlCache } from '@granary/shared/concurrency/ttl-cache';
import type { CometNode, NodeStatus } from './comet-node';
import { NodeFailure } from '@granary/shared/http/json-rpc';

/** How long another node is preferred to one that failed. */
const cooldownMs = 15_000;
/** A node is not asked when it is so many blocks behind another one. */
const lagMaxBlocks = 5n;

/** A node that can be asked, with its status from before. */
export interface ReadyNode {
  node: CometNode;
  status: NodeStatus;
}

/**
 * The nodes of one chain. A node that fails is asked after the others for a while; one that is not of the chain, never.
 */
export class CometNodes {
  private readonly statuses: TtlCache<NodeStatus>;
  private readonly cooldowns = new Cooldowns(cooldownMs);
  private readonly problemOf = new Map<CometNode, string>();
  private nextIndex = 0;

  constructor(
    private readonly nodes: readonly CometNode[],
    readonly chainId: string,
    /** How old what is known of the height of a node may be. */
    statusTtlMs: number,
  ) {
    this.statuses = new TtlCache({ max: nodes.length, ttlMs: statusTtlMs });
  }

  get count(): number {
    return this.nodes.length;
  }

  /** A sentence for each node that cannot be asked, as of the last time. */
  get problems(): string[] {
    return this.nodes.flatMap((node) => this.problemOf.get(node) ?? []);
  }

  /** The nodes that can be asked, those that failed lately last. Throws a NodeFailure when there is none. */
  async ready(): Promise<ReadyNode[]> {
    const inOrder = this.cooldowns.order(this.nodes, ({ name }) => name);
    const candidates = inOrder.filter(({ name }) => !this.cooldowns.has(name));
    let ready = await this.check(candidates);
    // The nodes that failed lately are the last resort.
    if (ready.length === 0) ready = await this.check(inOrder.filter((node) => !candidates.includes(node)));
    if (ready.length === 0) throw new NodeFailure(this.problems.join('; '));
    return ready;
  }

  /** The nodes that `ready` returns, rotated so that each call puts another node first. */
  async rotated(): Promise<ReadyNode[]> {
    const ready = await this.ready();
    const first = this.nextIndex++ % ready.length;
    return [...ready.slice(first), ...ready.slice(0, first)];
  }

  /** The answer of the first node that gives one. Throws the error of the last node when none does. */
  async ask<T>(work: (node: CometNode) => Promise<T>): Promise<T> {
    let failure: unknown;
    for (const { node } of await this.ready()) {
      try {
        return await work(node);
      } catch (error) {
        failure = this.failed(node, error);
      }
    }
    throw failure;
  }

  /** The node threw the error, which is returned. */
  failed(node: CometNode, error: unknown): unknown {
    if (error instanceof NodeFailure) {
      this.cooldowns.begin(node.name);
      this.statuses.delete(node.name);
      this.problemOf.set(node, error.message);
    }
    return error;
  }

  private async check(nodes: readonly CometNode[]): Promise<ReadyNode[]> {
    const answering: ReadyNode[] = [];
    const statuses = await Promise.all(nodes.map((node) => this.status(node)));
    for (const [index, node] of nodes.entries()) {
      const status = statuses[index];
      if (status) answering.push({ node, status });
    }
    const best = answering.reduce((height, { status }) => (status.height > height ? status.height : height), 0n);
    return answering.filter(({ node, status }) => {
      const problem = status.height + lagMaxBlocks < best ? `${node.name} is behind the others` : undefined;
      return this.note(node, problem) === undefined;
    });
  }

  /** Undefined when the node cannot be asked. */
  private async status(node: CometNode): Promise<NodeStatus | undefined> {
    try {
      const status = (await this.statuses.get(node.name, () => node.status()))!;
      return this.note(node, this.problemWith(node, status)) === undefined ? status : undefined;
    } catch (error) {
      this.failed(node, error);
      return undefined;
    }
  }

  /** Why a node that answers must not be asked. */
  private problemWith({ name }: CometNode, { chainId, isCatchingUp, hasIndex }: NodeStatus): string | undefined {
    if (chainId !== this.chainId) return `${name} is of the chain ${chainId}`;
    if (!hasIndex) return `${name} has no index of transactions`;
    return isCatchingUp ? `${name} is catching up` : undefined;
  }

  private note(node: CometNode, problem: string | undefined): string | undefined {
    if (problem === undefined) this.problemOf.delete(node);
    else this.problemOf.set(node, problem);
    return problem;
  }
}
