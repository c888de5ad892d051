import { execute, row, rows, type Pool } from '@granary/shared/postgres/pool';
import { sql } from '@granary/shared/postgres/sql';
import { retriedTransaction } from '@granary/shared/postgres/transaction';
import { sweepPurpose } from '../deposits/sweep';
import { deductionPurpose } from '../grants/deduction-purpose';
import { lockOpen, updateOutgoing } from '../outgoing/outgoing-transaction';
import { payoutPurpose } from './payout-purpose';

/** A transaction that waits for a person. */
export interface HeldTransaction {
  hash: string;
  sender: string;
  sequence: bigint;
  timeoutHeight: bigint;
  /** Null: a block may still include it, as far as is known. */
  absentHeight: bigint | null;
  /** The kind of the payments in it; null when it has none any more. */
  kind: 'payouts' | 'deductions' | 'sweeps' | null;
  /** How many of them. */
  count: bigint;
  amount: bigint;
  error: string;
}

export function listHeld(db: Pool): Promise<HeldTransaction[]> {
  return rows<HeldTransaction>(
    db,
    sql`select hash, sender, sequence, timeout_height as "timeoutHeight", absent_height as "absentHeight", o.error,
               parts.kind, coalesce(parts.count, 0)::bigint as count, coalesce(parts.amount, 0)::bigint as amount
        from outgoing_transaction o left join lateral (
          select 'payouts' as kind, count(*) as count, sum(amount) as amount
            from payout where transaction_number = o.number having count(*) > 0
          union all
          select 'deductions', count(*), sum(amount)
            from grant_deduction where transaction_number = o.number having count(*) > 0
          union all
          select 'sweeps', 1, amount from sweep where transaction_number = o.number
        ) parts on true
        where o.state = 'held' order by o.number`,
  );
}

/** The senders of which nothing is signed until they are resumed, with the reason. */
export function listStopped(db: Pool): Promise<Array<{ address: string; reason: string }>> {
  return rows(db, sql`select address, stopped_because as reason from chain_sender where stopped_because is not null`);
}

/**
 * Gives a held transaction up, so that its payouts or deductions, or what it sweeps, wait for another one: a person has
 * made sure that no block has it. Throws an Error when there is no such one, or as long as a block could still include
 * it.
 */
export function releaseHeld(pool: Pool, hash: string): Promise<void> {
  return retriedTransaction(pool, async (tx) => {
    const transaction = await row<{ number: bigint }>(
      tx,
      sql`select number from outgoing_transaction where hash = ${hash}`,
    );
    const outgoing = transaction && (await lockOpen(tx, transaction.number));
    if (outgoing?.state !== 'held') throw new Error('No transaction with this hash is held');
    if (outgoing.absentHeight === null) {
      throw new Error('No node beyond its timeout height has been asked yet: a block could still include it');
    }
    await updateOutgoing(tx, outgoing.number, { state: 'expired' });
    // It was signed for one of them; of the others there is nothing.
    for (const purpose of [payoutPurpose, sweepPurpose, deductionPurpose]) await purpose.expired(tx, outgoing);
    await resume(tx, outgoing.sender);
  });
}

/**
 * Lets all senders that are stopped sign again, from the sequence that the chain expects. Returns how many there were.
 */
export async function resumeSenders(pool: Pool): Promise<number> {
  const stopped = await listStopped(pool);
  for (const { address } of stopped) await resume(pool, address);
  return stopped.length;
}

const resume = (db: Parameters<typeof execute>[0], address: string): Promise<number> =>
  execute(db, sql`update chain_sender set stopped_because = null, next_sequence = null where address = ${address}`);
