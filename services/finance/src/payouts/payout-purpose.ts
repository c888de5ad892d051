import { execute, rows, type Connection } from '@granary/shared/postgres/pool';
import { sql } from '@granary/shared/postgres/sql';
import { sdkCodes, sdkCodespace } from '@granary/shared/money/cosmos/read-transaction';
import type { Group } from '../ledger/commands';
import { transferId } from '@granary/shared/money/transfer-id';
import type { Purpose } from '../outgoing/delivery';
import type { OutgoingTransaction } from '../outgoing/outgoing-transaction';
import { resumeAutoPayouts, stopAutoPayouts } from './auto-stops';

interface Paid {
  id: string;
  holdId: string;
  createdAt: Date;
}

/** The payouts of a transaction, as its state changes. */
export const payoutPurpose: Purpose = {
  broadcast: (tx, { number }) => update(tx, number, sql`status = 'broadcast'`),

  held: (tx, { number }) => update(tx, number, sql`error = 'waits for the operator'`),

  expired: (tx, { number }) => release(tx, number),

  included: async (tx, outgoing, { code, codespace }) => {
    const payouts = await lockPayouts(tx, outgoing);
    if (code === 0) {
      await update(tx, outgoing.number, sql`status = 'confirmed', error = null`);
      await resumeAutoPayouts(tx, outgoing.number);
      return payouts.map(({ id, holdId, createdAt }) => [
        { type: 'post', id: transferId(createdAt, 'payout_post', id), kind: 'payout', holdId },
      ]);
    }
    // The hot wallet was short of funds: it is no fault of the payout.
    if (codespace === sdkCodespace && code === sdkCodes.insufficientFunds) await release(tx, outgoing.number);
    // One of them is at fault, which one is not known.
    else if (payouts.length > 1) await release(tx, outgoing.number, sql`, is_single = true`);
    else return fail(tx, outgoing, code, payouts);
    return [];
  },
};

const lockPayouts = (tx: Connection, { number }: OutgoingTransaction): Promise<Paid[]> =>
  rows<Paid>(
    tx,
    sql`select id, hold_id as "holdId", created_at as "createdAt" from payout
        where transaction_number = ${number} order by id for no key update`,
  );

async function fail(
  tx: Connection,
  { number }: OutgoingTransaction,
  code: number,
  payouts: readonly Paid[],
): Promise<Group[]> {
  await update(tx, number, sql`status = 'failed', error = ${`the chain refused it with code ${code}`}`);
  for (const { id } of payouts) await stopAutoPayouts(tx, id);
  return payouts.map(({ id, holdId, createdAt }) => [
    { type: 'void', id: transferId(createdAt, 'payout_void', id), kind: 'payout', holdId },
  ]);
}

/** The payouts wait for another transaction. */
const release = (tx: Connection, number: bigint, more = sql``): Promise<void> =>
  update(tx, number, sql`status = 'pending', transaction_number = null, tx_hash = null, error = null${more}`);

async function update(tx: Connection, number: bigint, change: ReturnType<typeof sql>): Promise<void> {
  await execute(
    tx,
    sql`update payout set ${change}, updated_at = clock_timestamp() where transaction_number = ${number}`,
  );
}
