import type { Logger } from '@granary/shared/logger';
import { execute, row, rows, type Connection, type Pool } from '@granary/shared/postgres/pool';
import { sql } from '@granary/shared/postgres/sql';
import { retriedTransaction } from '@granary/shared/postgres/transaction';
import type { Chain, ChainAccount } from '../chain/chain';
import { feeOf, gasLimit } from '../chain/fee';
import { signTransfer } from '../chain/sign-transfer';
import type { Output } from '../chain/transaction';
import { findOpen, insertSigned, lockSender } from '../outgoing/outgoing-transaction';
import type { KeyProvider } from '../wallets/keys';
import { arePayoutsPaused } from './pause';

/** Payouts that one transaction pays. */
export const payoutsMax = 100;

export interface SigningOptions {
  pool: Pool;
  chain: Chain;
  keys: KeyProvider;
  log: Logger;
  /** The address of the hot wallet. */
  sender: string;
  denom: string;
  /** In the denomination. */
  gasPrice: number;
  /** A transaction can be included in so many blocks from its signature on. */
  timeoutBlocks: number;
}

interface Waiting {
  id: string;
  amount: bigint;
  destination: string;
  isSingle: boolean;
}

/**
 * Signs a transaction for the payouts that have waited longest, at most `payoutsMax`, and stores it; nothing is sent. False when
 * nothing could be signed: no payout waits, another transaction is in flight, payouts are paused or stopped, or the hot wallet
 * is short of funds. Concurrent calls sign once.
 */
export async function signPayouts(options: SigningOptions): Promise<boolean> {
  const { pool, chain, sender, log } = options;
  if ((await findOpen(pool, sender)) || (await listWaiting(pool, 1)).length === 0) return false;
  // In this order: what is known of the money is not older than the sequence.
  const { height } = await chain.height();
  const account = await chain.account(sender);
  const balance = await chain.balance(sender);
  return retriedTransaction(pool, async (tx) => {
    const { nextSequence, stoppedBecause } = await lockSender(tx, sender, account?.sequence ?? 0n);
    if (stoppedBecause !== null || (await findOpen(tx, sender)) || (await arePayoutsPaused(tx))) return false;
    const sequence = account?.sequence ?? 0n;
    // The node lags behind, or another process has sent a transaction since it was asked.
    if (sequence < nextSequence) return false;
    if (sequence > nextSequence) {
      log.error({ sequence: sequence.toString() }, 'somebody else signs with the key of the hot wallet, payouts stop');
      await stop(tx, sender, 'a transaction of the hot wallet is on the chain that was not sent from here');
      return false;
    }
    const { payouts, missing } = await choose(tx, balance, options.gasPrice);
    await execute(tx, sql`update chain_sender set missing_utia = ${missing} where address = ${sender}`);
    if (payouts.length === 0) return false;
    await sign(tx, options, account!, height, payouts);
    return true;
  });
}

const stop = (tx: Connection, sender: string, reason: string): Promise<number> =>
  execute(tx, sql`update chain_sender set stopped_because = ${reason} where address = ${sender}`);

/** The payouts that wait for a transaction, in the order in which they are paid. */
function listWaiting(db: Pool | Connection, limit: number, lock = sql``): Promise<Waiting[]> {
  return rows<Waiting>(
    db,
    sql`select id, amount, destination, is_single as "isSingle" from payout
        where status = 'pending' and transaction_number is null and hold_id is not null
        order by is_single desc, created_at, id limit ${limit}${lock}`,
  );
}

/** The next payouts that the hot wallet can pay with the fee; none, and what is missing, when it is not enough for the first. */
async function choose(
  tx: Connection,
  balance: bigint,
  gasPrice: number,
): Promise<{ payouts: Waiting[]; missing: bigint | null }> {
  const waiting = await listWaiting(tx, payoutsMax, sql` for no key update`);
  const together = waiting[0]?.isSingle ? waiting.slice(0, 1) : waiting;
  let total = 0n;
  for (const [at, { amount }] of together.entries()) {
    total += amount;
    const missing = total + feeOf(gasLimit(at + 1), gasPrice) - balance;
    if (missing > 0n) return { payouts: together.slice(0, at), missing: at === 0 ? missing : null };
  }
  return { payouts: together, missing: null };
}

async function sign(
  tx: Connection,
  { chain, keys, sender, denom, gasPrice, timeoutBlocks }: SigningOptions,
  { number: accountNumber, sequence }: ChainAccount,
  height: bigint,
  payouts: readonly Waiting[],
): Promise<void> {
  const gas = gasLimit(payouts.length);
  const fee = feeOf(gas, gasPrice);
  const timeoutHeight = height + BigInt(timeoutBlocks);
  const outputs = payouts.map(({ destination, amount }): Output => ({ address: destination, amount }));
  const { bytes, hash } = await signTransfer(keys, 'hot', {
    ...{ chainId: chain.id, accountNumber, sequence, sender, outputs: outputs as [Output, ...Output[]], denom },
    ...{ memo: '', fee: { amount: fee, gas }, timeoutHeight },
  });
  const number = await insertSigned(tx, { sender, sequence, hash, bytes, timeoutHeight, fee });
  const ids = payouts.map(({ id }) => id);
  await execute(
    tx,
    sql`with attempt as (
          insert into payout_attempt (transaction_number, payout_id) select ${number}, * from unnest(${ids}::uuid[])
        )
        update payout set transaction_number = ${number}, tx_hash = ${hash}, updated_at = clock_timestamp()
        where id = any(${ids}::uuid[])`,
  );
}

/** How payouts are, for health. */
export interface PayoutState {
  /** Transactions that wait for a person. */
  held: bigint;
  stoppedBecause: string | null;
  missing: bigint | null;
  /** Of the payout that has waited longest without being final; null if there is none. */
  oldestAgeSeconds: number | null;
}

export async function readPayoutState(db: Pool): Promise<PayoutState> {
  const found = await row<PayoutState>(
    db,
    sql`select (select count(*) from outgoing_transaction where state = 'held') as held,
          (select max(stopped_because) from chain_sender) as "stoppedBecause",
          (select max(missing_utia) from chain_sender) as missing,
          (select extract(epoch from now() - min(created_at))::float8 from payout
           where status in ('pending', 'broadcast') and hold_id is not null) as "oldestAgeSeconds"`,
  );
  return found!;
}
