import { execute, row, rows, type Connection, type Pool } from '@granary/shared/postgres/pool';
import { sql } from '@granary/shared/postgres/sql';
import type { Output } from '@granary/shared/money/cosmos/transaction';
import { signNext, transferFee, type Draft, type SigningOptions } from '../outgoing/sign-next';
import { arePayoutsPaused } from './pause';

/** Payouts that one transaction pays. */
export const payoutsMax = 100;

export interface PayoutSigning extends SigningOptions {
  /** The address of the hot wallet. */
  sender: string;
}

interface Waiting {
  id: string;
  amount: bigint;
  destination: string;
  isSingle: boolean;
}

/**
 * Signs a transaction for the payouts that have waited longest, at most `payoutsMax`, and stores it; nothing is sent.
 * False when nothing could be signed: no payout waits, payouts are paused or stopped, the hot wallet is short of funds,
 * or one of the reasons of signNext.
 */
export async function signPayouts(options: PayoutSigning): Promise<boolean> {
  const { pool, sender, gasPrice } = options;
  if ((await listWaiting(pool, 1)).length === 0) return false;
  return signNext(options, { address: sender, key: 'hot' }, async (tx, balance) => {
    if (await arePayoutsPaused(tx)) return undefined;
    const { payouts, missing } = await choose(tx, balance, gasPrice);
    await execute(tx, sql`update chain_sender set missing_utia = ${missing} where address = ${sender}`);
    return payouts.length === 0 ? undefined : draftOf(payouts);
  });
}

const draftOf = (payouts: readonly Waiting[]): Draft => ({
  outputs: payouts.map(({ destination, amount }): Output => ({ address: destination, amount })),
  stored: async (tx, number, hash) => {
    const ids = payouts.map(({ id }) => id);
    await execute(
      tx,
      sql`with attempt as (
            insert into payout_attempt (transaction_number, payout_id) select ${number}, * from unnest(${ids}::uuid[])
          )
          update payout set transaction_number = ${number}, tx_hash = ${hash}, updated_at = clock_timestamp()
          where id = any(${ids}::uuid[])`,
    );
  },
});

/** The payouts that wait for a transaction, in the order in which they are paid. */
function listWaiting(db: Pool | Connection, limit: number, lock = sql``): Promise<Waiting[]> {
  return rows<Waiting>(
    db,
    sql`select id, amount, destination, is_single as "isSingle" from payout
        where status = 'pending' and transaction_number is null and hold_id is not null
        order by is_single desc, created_at, id limit ${limit}${lock}`,
  );
}

/**
 * The next payouts that the hot wallet can pay with the fee; none, and what is missing, when it is not enough for the
 * first.
 */
async function choose(
  tx: Connection,
  balance: bigint,
  gasPrice: number,
): Promise<{ payouts: Waiting[]; missing: bigint | null }> {
  const waiting = await listWaiting(tx, payoutsMax, sql` for no key update`);
  const together = waiting[0]?.isSingle ? waiting.slice(0, 1) : waiting;
  let total = 0n;
  for (const [index, { amount }] of together.entries()) {
    total += amount;
    const missing = total + transferFee(index + 1, gasPrice) - balance;
    if (missing > 0n) return { payouts: together.slice(0, index), missing: index === 0 ? missing : null };
  }
  return { payouts: together, missing: null };
}

/** How payouts are, for health. */
export interface PayoutState {
  /** Transactions that wait for a person. */
  held: bigint;
  stoppedBecause: string | null;
  missing: bigint | null;
  /** The age of the oldest payout that is not final; null if there is none. */
  oldestAgeSeconds: number | null;
}

export async function readPayoutState(db: Pool): Promise<PayoutState> {
  const state = await row<PayoutState>(
    db,
    sql`select (select count(*) from outgoing_transaction where state = 'held') as held,
          (select max(stopped_because) from chain_sender where stopped_because is not null) as "stoppedBecause",
          (select max(missing_utia) from chain_sender where missing_utia is not null) as missing,
          (select extract(epoch from now() - min(created_at))::float8 from payout
           where status in ('pending', 'broadcast') and hold_id is not null) as "oldestAgeSeconds"`,
  );
  return state!;
}
