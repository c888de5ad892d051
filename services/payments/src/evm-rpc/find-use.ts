import type { Logger } from '@granary/shared/logger';
import type { FindResult } from '../networks/settlement-network';
import type { EvmProof } from '../verify/evm-exact';
import type { EvmBlock, EvmNode } from './evm-node';
import { authorizationTopics, isTransfer, isUse, readState, stateCall, type EvmLog } from './token';

/** How many blocks nodes look through at once. */
const logBlocks = 1_000n;
/** How far back a use is looked for of which nothing is known. */
const unknownBlocks = 10_000n;
/** How many blocks the network may replace by others: one of them may have the use that a later one had, or none had, before. */
const reorgBlocks = 100n;
/** How long after the end of an authorization a use without a log counts as one that is older. */
const missingSeconds = 600n;

export interface FindOptions {
  /** The authorization was not used up to this block. Undefined: it was used before it was to be settled here. */
  sinceHeight: bigint | undefined;
  /** So many blocks have to follow. */
  depthBlocks: bigint;
  log: Logger;
}

/** Whether a token says that an authorization was used or cancelled. */
export const isSpent = async (node: EvmNode, proof: EvmProof, height: bigint): Promise<boolean> =>
  readState(await node.call({ to: proof.asset, data: stateCall(proof) }, height));

/**
 * Whether the transfer that a payment authorizes was made, by whichever transaction: the token logs the use of the authorization,
 * and after that, as its next log, the transfer. A transfer elsewhere in the same transaction may belong to another authorization,
 * so it does not count.
 */
export async function findUse(
  node: EvmNode,
  latest: EvmBlock,
  proof: EvmProof,
  { sinceHeight, depthBlocks, log }: FindOptions,
): Promise<FindResult> {
  if (latest.height < depthBlocks) return { state: 'absent' };
  const final = await node.block(latest.height - depthBlocks);
  const validBefore = BigInt(proof.validBefore);
  if (!(await isSpent(node, proof, latest.height))) {
    // No later block can have an earlier time.
    return final.timestampSeconds >= validBefore ? expired : { state: 'absent' };
  }
  const use = await findLog(node, latest.height, proof, sinceHeight);
  if (!use) {
    if (final.timestampSeconds < validBefore + missingSeconds) return { state: 'absent' };
    logMissing(log, proof, latest, sinceHeight);
    return spent;
  }
  const receipt = await node.receipt(use.transactionHash);
  if (!receipt || receipt.height > final.height) return { state: 'absent' };
  const next = receipt.logs.find(({ address, index }) => address === proof.asset && index > use.index);
  if (!isUse(use, proof) || !receipt.hasSucceeded || !next || !isTransfer(next, proof)) return spent;
  const { height, timestampSeconds } = await node.block(receipt.height);
  return { state: 'included', hash: use.transactionHash, height, at: new Date(Number(timestampSeconds) * 1_000) };
}

/** The log of the use or the cancellation, the latest blocks first. */
async function findLog(
  node: EvmNode,
  latest: bigint,
  proof: EvmProof,
  sinceHeight: bigint | undefined,
): Promise<EvmLog | undefined> {
  const earliest = earliestOf(latest, sinceHeight);
  const topics = authorizationTopics(proof);
  for (let to = latest; to >= 0n && to >= earliest; to -= logBlocks) {
    const first = to - logBlocks + 1n;
    const from = first > earliest ? first : earliest;
    const [log] = await node.logs(proof.asset, topics, from < 0n ? 0n : from, to);
    if (log) return log;
  }
  return undefined;
}

const earliestOf = (latest: bigint, sinceHeight: bigint | undefined): bigint =>
  sinceHeight === undefined ? latest - unknownBlocks : sinceHeight + 1n - reorgBlocks;

/** The money may have been moved to the recipient: a person has to look. */
function logMissing(
  log: Logger,
  { network, asset, from, to, value, nonce }: EvmProof,
  { height }: EvmBlock,
  sinceHeight: bigint | undefined,
): void {
  log.error(
    {
      ...{ network, asset, payer: from, payTo: to, amount: value, nonce },
      ...{ fromBlock: earliestOf(height, sinceHeight).toString(), toBlock: height.toString() },
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
