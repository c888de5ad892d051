import { TtlCache } from '@granary/shared/concurrency/ttl-cache';
import type { Logger } from '@granary/shared/logger';
import type { NodePool } from '../../networks/node-pool';
import type { FindResult } from '../../networks/settlement-network';
import type { EvmProof } from './verify';
import type { EvmBlock, EvmNode } from './node';
import { authorizationTopics, isTransfer, isUse, readState, stateCall, useKeyIn, useKeyOf, type EvmLog } from './token';

/**
 * How old the latest block of a node may be in which payments are looked for. Those that wait for the next one renew it
 * more often.
 */
export const headMaxAgeMs = 250;
/** How many blocks nodes look through at once, and for how many payers. */
const logBlocks = 1_000n;
const logPayers = 500;
/** How far back a use is looked for of which nothing is known. */
const unknownBlocks = 10_000n;
/**
 * How many blocks the network may replace by others: one of them may have the use that a later one had, or none had,
 * before.
 */
const reorgBlocks = 100n;
/** How long after the end of an authorization a use without a log counts as one that is older. */
const missingSeconds = 600n;
/** How long a payment is looked for together with others after it was looked for last. */
const watchedMs = 60_000;
/** Logs whose transactions are known. */
const transfers = { max: 10_000, ttlMs: 3_600_000, negativeTtlMs: 0 };

/** The transaction that was stored for a payment. */
export interface OwnTransaction {
  /** The authorization was not used up to this block. */
  sinceHeight: bigint;
  nonce: bigint;
}

/** A payment that is looked for. */
interface Watched {
  proof: EvmProof;
  /** Undefined: it was used before it was to be settled here. */
  own: OwnTransaction | undefined;
  lookedAtMs: number;
}

/**
 * A node and its latest block, with what it has said then: payments that are looked for after the same block share it.
 */
interface View {
  node: EvmNode;
  head: EvmBlock;
  /** The logs of uses and cancellations, by what was used. Payments that were looked for together share one result. */
  logs: Map<string, Promise<ReadonlyMap<string, EvmLog>>>;
  /** The block that as many blocks follow as have to; undefined: the chain is too short. */
  final?: Promise<EvmBlock | undefined>;
  /** How many transactions of the account that pays the gas are included. */
  count?: Promise<bigint>;
}

/** The transaction of a log. */
interface Use {
  /** It moved what the payment authorizes; otherwise the authorization was cancelled, or used for something else. */
  isPaid: boolean;
  hash: string;
  height: bigint;
  at: Date;
}

export interface AuthorizationUsesOptions {
  nodes: NodePool<EvmBlock, EvmNode>;
  /** The account that pays the gas. */
  address: string;
  /** Blocks that must follow the block of a transfer before it is final. */
  depthBlocks: bigint;
  log: Logger;
}

/** Whether a token says that an authorization was used or cancelled. */
export const isSpent = async (node: EvmNode, proof: EvmProof, height: bigint): Promise<boolean> =>
  readState(await node.call({ to: proof.asset, data: stateCall(proof) }, height));

/**
 * Whether the transfers that payments authorize were made, by whichever transactions: the token logs the use of an
 * authorization, and after that, as its next log, the transfer. A transfer elsewhere in the same transaction may belong
 * to another authorization, so it does not count. The calls to a node grow with the blocks, not with the payments that
 * wait.
 */
export class AuthorizationUses {
  private readonly watched = new Map<string, Watched>();
  private readonly transfers = new TtlCache<Use>(transfers);
  private view: View | undefined;

  constructor(private readonly options: AuthorizationUsesOptions) {}

  /** @param ownTransaction Undefined: the authorization was used before it was to be settled here. */
  find(proof: EvmProof, ownTransaction: OwnTransaction | undefined): Promise<FindResult> {
    const watched = { proof, own: ownTransaction, lookedAtMs: performance.now() };
    this.watched.set(useKeyOf(proof), watched);
    return this.options.nodes.ask((node, head) => this.findIn(this.viewAfter(node, head), watched), headMaxAgeMs);
  }

  private async findIn(view: View, { proof, own: ownTransaction }: Watched): Promise<FindResult> {
    const { head, node } = view;
    // It was not used up to there.
    if (head.height === ownTransaction?.sinceHeight) return { state: 'absent' };
    const log = await this.logOf(view, useKeyOf(proof));
    const final = await this.finalOf(view);
    if (!log) return this.unused(view, proof, ownTransaction, final);
    const use = await this.transfers.get(transferKeyOf(log, proof), () => this.confirmedUseOf(node, log, proof));
    // Another block has taken its place since.
    if (!use) return { state: 'absent' };
    const isFinal = final !== undefined && use.height <= final.height;
    if (!use.isPaid) return isFinal ? spent : { state: 'absent' };
    return { state: 'included', hash: use.hash, height: use.height, at: use.at, isFinal };
  }

  private async unused(
    view: View,
    proof: EvmProof,
    ownTransaction: OwnTransaction | undefined,
    final: EvmBlock | undefined,
  ): Promise<FindResult> {
    const { node, head } = view;
    const validBefore = BigInt(proof.validBefore);
    // No later block can have an earlier time.
    if (final && final.timestampSeconds >= validBefore) {
      if (!(await isSpent(node, proof, head.height))) return expired;
      if (final.timestampSeconds < validBefore + missingSeconds) return { state: 'absent' };
      logMissing(this.options.log, proof, head, ownTransaction);
      return spent;
    }
    const hasFailed = ownTransaction !== undefined && ownTransaction.nonce < (await this.countOf(view));
    return { state: 'absent', hasFailed };
  }

  /** The view of the same block is kept, for what the node has said after it stays so. */
  private viewAfter(node: EvmNode, head: EvmBlock): View {
    if (this.view?.node === node && this.view.head.hash === head.hash) return this.view;
    const forgottenMs = performance.now() - watchedMs;
    for (const [key, { lookedAtMs }] of this.watched) if (lookedAtMs < forgottenMs) this.watched.delete(key);
    return (this.view = { node, head, logs: new Map() });
  }

  /** The log of the use or the cancellation, looked for together with all that were not looked for after this block. */
  private async logOf(view: View, key: string): Promise<EvmLog | undefined> {
    const pending = view.logs.get(key);
    if (pending) return (await pending).get(key);
    const missing = [...this.watched].filter(([each]) => !view.logs.has(each));
    const logs = findLogs(
      view,
      missing.map(([, watched]) => watched),
    );
    for (const [each] of missing) view.logs.set(each, logs);
    logs.catch(() => {
      for (const [each] of missing) view.logs.delete(each);
    });
    return (await logs).get(key);
  }

  /** Undefined also while another node does not say the same: one alone could invent a transfer. */
  private async confirmedUseOf(node: EvmNode, log: EvmLog, proof: EvmProof): Promise<Use | undefined> {
    const use = await useOf(node, log, proof);
    if (!use?.isPaid) return use;
    const isConfirmed = await this.options.nodes.confirm(node, async (other, latest) => {
      const hasConfirmed = (await useOf(other, log, proof))?.isPaid === true;
      // One that is behind has the block in a moment.
      if (!hasConfirmed && latest.height >= use.height) {
        const facts = { network: proof.network, transaction: use.hash, by: node.name, notBy: other.name };
        this.options.log.warn(facts, 'a node tells of a transfer that another node does not have');
      }
      return hasConfirmed;
    });
    return isConfirmed ? use : undefined;
  }

  private finalOf(view: View): Promise<EvmBlock | undefined> {
    const height = view.head.height - this.options.depthBlocks;
    const find = () => (height < 0n ? Promise.resolve(undefined) : view.node.block(height));
    return (view.final ??= forgottenIfFailed(find(), () => delete view.final));
  }

  private countOf(view: View): Promise<bigint> {
    const find = () => view.node.transactionCount(this.options.address, view.head.height);
    return (view.count ??= forgottenIfFailed(find(), () => delete view.count));
  }
}

function forgottenIfFailed<T>(promise: Promise<T>, forget: () => void): Promise<T> {
  promise.catch(forget);
  return promise;
}

/** The logs of uses and cancellations of payments, by what was used. There is one of each. */
async function findLogs({ node, head }: View, watched: readonly Watched[]): Promise<ReadonlyMap<string, EvmLog>> {
  const logs = new Map<string, EvmLog>();
  const assets = [...new Set(watched.map(({ proof }) => proof.asset))];
  const topics = watched.map(({ proof }) => authorizationTopics(proof));
  const events = topics[0]![0];
  const payers = [...new Set(topics.map(([, payer]) => payer))];
  const starts = watched.map(({ own }) => earliestOf(head, own));
  const earliest = starts.reduce((first, each) => (each < first ? each : first));
  for (let offset = 0; offset < payers.length; offset += logPayers) {
    for (let to = head.height; to >= earliest; to -= logBlocks) {
      const first = to - logBlocks + 1n;
      const from = first > earliest ? first : earliest;
      for (const log of await node.logs(assets, [events, payers.slice(offset, offset + logPayers)], from, to)) {
        logs.set(useKeyIn(log), log);
      }
    }
  }
  return logs;
}

function earliestOf({ height }: EvmBlock, ownTransaction: OwnTransaction | undefined): bigint {
  const earliest = ownTransaction ? ownTransaction.sinceHeight + 1n - reorgBlocks : height - unknownBlocks;
  return earliest > 0n ? earliest : 0n;
}

/** A payer may have signed the same nonce for several transfers, of which the token makes one. */
const transferKeyOf = ({ blockHash }: EvmLog, proof: EvmProof): string =>
  `${blockHash}|${useKeyOf(proof)}|${proof.to}|${proof.value}`;

/** Undefined: another block has taken the place of that of the log. */
async function useOf(node: EvmNode, log: EvmLog, proof: EvmProof): Promise<Use | undefined> {
  const receipt = await node.receipt(log.transactionHash);
  if (receipt?.blockHash !== log.blockHash) return undefined;
  const { height, hasSucceeded, logs } = receipt;
  const block = await node.block(height);
  if (block.hash !== log.blockHash) return undefined;
  const next = logs.find(({ address, index }) => address === log.address && index > log.index);
  const isPaid = isUse(log, proof) && hasSucceeded && next !== undefined && isTransfer(next, proof);
  return { isPaid, hash: log.transactionHash, height, at: new Date(Number(block.timestampSeconds) * 1_000) };
}

/** The money may have been moved to the recipient: a person has to look. */
function logMissing(
  log: Logger,
  { network, asset, from, to, value, nonce }: EvmProof,
  head: EvmBlock,
  ownTransaction: OwnTransaction | undefined,
): void {
  log.error(
    {
      network,
      asset,
      payer: from,
      payTo: to,
      amount: value,
      nonce,
      fromBlock: earliestOf(head, ownTransaction).toString(),
      toBlock: head.height.toString(),
    },
    'an authorization is spent, and no block that was searched says how: its payment is refused',
  );
}

const expired = {
  state: 'impossible',
  reason: 'invalid_exact_evm_payload_authorization_valid_before',
  message: 'The time of the authorization is over',
} as const;

const spent = {
  state: 'impossible',
  reason: 'invalid_transaction_state',
  message: 'The authorization was cancelled, or used for something else',
} as const;
