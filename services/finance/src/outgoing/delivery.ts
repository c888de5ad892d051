import type { Logger } from '@granary/shared/logger';
import { execute, type Connection, type Pool } from '@granary/shared/postgres/pool';
import { sql } from '@granary/shared/postgres/sql';
import { retriedTransaction } from '@granary/shared/postgres/transaction';
import type { Chain, FindResult, Outcome } from '../chain/chain';
import { sdkCodes, sdkCodespace } from '@granary/shared/money/cosmos/read-transaction';
import { applyCommands } from '../ledger/apply-commands';
import type { Group } from '../ledger/commands';
import { transferId } from '@granary/shared/money/transfer-id';
import { findOpen, lockOpen, updateOutgoing, type OutgoingTransaction } from './outgoing-transaction';

/** A node that has not indexed its latest blocks is waited for this long, in blocks after the timeout height. */
const indexLagMax = 20n;

/**
 * Refusals of the Cosmos SDK that are no reason to hold a transaction: it is in a block, or it cannot be included as
 * things are.
 */
const ordinaryRefusals: readonly number[] = [
  sdkCodes.wrongSequence,
  sdkCodes.timeoutHeight,
  sdkCodes.insufficientFunds,
];

const isOrdinary = ({ code, codespace }: Outcome): boolean =>
  codespace === sdkCodespace && ordinaryRefusals.includes(code);

type Included = Extract<FindResult, { state: 'included' }>;

/**
 * Handles the changes of state of transactions that are sent for one purpose. Its functions are called in the database
 * transaction that changes the state, which is rolled back if they throw.
 */
export interface Purpose {
  /** A node has it. */
  broadcast(tx: Connection, outgoing: OutgoingTransaction): Promise<void>;
  /**
   * It is in a block; of a transaction with another code than 0 only the fee was taken. Returns what the ledger posts.
   */
  included(tx: Connection, outgoing: OutgoingTransaction, outcome: Outcome): Promise<Group[]>;
  /** It waits for a person. */
  held(tx: Connection, outgoing: OutgoingTransaction): Promise<void>;
  /** No block can include it: what it was for waits for another one. */
  expired(tx: Connection, outgoing: OutgoingTransaction): Promise<void>;
}

export interface DeliveryOptions {
  pool: Pool;
  chain: Chain;
  log: Logger;
  purpose: Purpose;
}

/** `idle`: nothing is in flight; `waiting`: for the next block; `progress`: call again. */
export type Step = 'idle' | 'waiting' | 'progress';

/**
 * Makes one step of the transaction that a sender has in flight: sends its bytes, looks for it, ends it. Each step is
 * repeatable and may run in several processes at once. The same bytes are sent as often as necessary. A transaction
 * expires only when a node beyond its timeout height has not found it on two looks in different blocks, and the
 * sender's account beyond that height has not used its sequence: so no other transaction takes its place while a block
 * may include it.
 */
export async function deliver(options: DeliveryOptions, sender: string): Promise<Step> {
  const open = await findOpen(options.pool, sender);
  if (!open) return 'idle';
  if (open.state === 'signed') return send(options, open);
  const result = await options.chain.find(open.hash);
  if (result.state === 'included') return end(options, open, result);
  if (open.state === 'held') return noteAbsence(options, open, result.height);
  if (result.height > open.timeoutHeight) return giveUp(options, open, result.height);
  // It may have been lost or evicted; a node that has it answers so.
  await send(options, open);
  return 'waiting';
}

async function send(options: DeliveryOptions, open: OutgoingTransaction): Promise<Step> {
  const result = await options.chain.broadcast(open.bytes);
  if (result.state === 'later') return 'waiting';
  if (result.state === 'refused' && !isOrdinary(result)) {
    return hold(options, open, `a node refused it with code ${result.code} of ${result.codespace}`);
  }
  if (open.state === 'signed') {
    await changeOpen(options, open, async (tx, outgoing) => {
      if (outgoing.state !== 'signed') return;
      await updateOutgoing(tx, outgoing.number, { state: 'broadcast' });
      await options.purpose.broadcast(tx, outgoing);
    });
  }
  return 'waiting';
}

/** The transaction is in a block, so its sequence is used, whatever its code. */
async function end(
  options: DeliveryOptions,
  open: OutgoingTransaction,
  { height, code, codespace }: Included,
): Promise<Step> {
  const { chain, purpose, log } = options;
  await changeOpen(options, open, async (tx, outgoing) => {
    await updateOutgoing(tx, outgoing.number, { state: code === 0 ? 'confirmed' : 'failed', height, code });
    await execute(
      tx,
      sql`update chain_sender set next_sequence = ${outgoing.sequence + 1n} where address = ${outgoing.sender}`,
    );
    const groups = await purpose.included(tx, outgoing, { code, codespace });
    await post(tx, outgoing.fee === 0n ? groups : [...groups, [feeOf(outgoing, chain.id)]]);
    if (code !== 0) log.warn({ hash: outgoing.hash, code, codespace }, 'a transaction failed on the chain');
  });
  return 'progress';
}

function feeOf({ createdAt, hash, fee }: OutgoingTransaction, chainId: string): Group[number] {
  return {
    type: 'transfer',
    id: transferId(createdAt, 'chain_fee', hash),
    kind: 'chain_fee',
    debitAccount: 'platform:cost',
    creditAccount: `chain:${chainId}`,
    amount: fee,
    ref: hash,
  };
}

async function post(tx: Connection, groups: readonly Group[]): Promise<void> {
  for (const result of (await applyCommands(tx, groups)).flat()) {
    if (result.outcome === 'refused') throw new Error(`the ledger refuses what the chain has done: ${result.reason}`);
  }
}

async function giveUp(options: DeliveryOptions, open: OutgoingTransaction, height: bigint): Promise<Step> {
  const { chain, purpose, log } = options;
  const account = await chain.account(open.sender);
  // A node may lag behind the one that answered before.
  if (account && account.height > open.timeoutHeight && account.sequence === open.sequence) {
    if (open.absentHeight === null) {
      await changeOpen(options, open, (tx, { number }) => updateOutgoing(tx, number, { absentHeight: height }));
    } else if (height > open.absentHeight) {
      await changeOpen(options, open, async (tx, outgoing) => {
        await updateOutgoing(tx, outgoing.number, { state: 'expired' });
        await purpose.expired(tx, outgoing);
        log.info({ hash: outgoing.hash }, 'a transaction has expired, another one takes its place');
      });
      return 'progress';
    }
    return 'waiting';
  }
  if (height <= open.timeoutHeight + indexLagMax) return 'waiting';
  return hold(options, open, 'its sequence on the chain is not the one that it was signed with');
}

/**
 * Whether a held transaction may be given up is for a person to say, who needs to know that no block can include it.
 */
async function noteAbsence(options: DeliveryOptions, open: OutgoingTransaction, height: bigint): Promise<Step> {
  if (height > open.timeoutHeight + indexLagMax && open.absentHeight === null) {
    await changeOpen(options, open, (tx, { number }) => updateOutgoing(tx, number, { absentHeight: height }));
  }
  return 'waiting';
}

async function hold(options: DeliveryOptions, open: OutgoingTransaction, error: string): Promise<Step> {
  await changeOpen(options, open, async (tx, outgoing) => {
    if (outgoing.state === 'held') return;
    await updateOutgoing(tx, outgoing.number, { state: 'held', error });
    await options.purpose.held(tx, outgoing);
    options.log.error({ hash: outgoing.hash, error }, 'a transaction is held: a person must decide');
  });
  return 'waiting';
}

/** Changes a transaction in one of the database, unless another process has ended it meanwhile. */
function changeOpen(
  { pool }: DeliveryOptions,
  { number }: OutgoingTransaction,
  work: (tx: Connection, outgoing: OutgoingTransaction) => Promise<void>,
): Promise<void> {
  return retriedTransaction(pool, async (tx) => {
    const outgoing = await lockOpen(tx, number);
    if (outgoing) await work(tx, outgoing);
  });
}
