import { execute, row, rows, type Connection, type Pool } from '@granary/shared/postgres/pool';
import { sql } from '@granary/shared/postgres/sql';

/** After so many refused payouts to one destination no automatic one to it is started. */
const refusalsMax = 3;

/**
 * Stops the automatic payouts of an application whose payout has just failed, if the chain has refused its latest
 * `refusalsMax`, all to the destination of its wallet: each further attempt would cost the platform a fee. Another
 * destination ends it, see payout-settings, and so does `resumeAutoPayouts`.
 */
export async function stopAutoPayouts(tx: Connection, payoutId: string): Promise<void> {
  await execute(
    tx,
    sql`update wallet set auto_payout_stopped = true
        where app_id = (select app_id from payout where id = ${payoutId}) and not auto_payout_stopped and (
          select count(*) filter (where status = 'failed' and destination = payout_destination) >= ${refusalsMax}
          from (select status, destination from payout
                where payout.app_id = wallet.app_id and status in ('confirmed', 'failed')
                order by created_at desc, id desc limit ${refusalsMax}) latest)`,
  );
}

/** Lets the applications whose payouts a transaction has paid have automatic ones again. */
export async function resumeAutoPayouts(tx: Connection, transactionNumber: bigint): Promise<void> {
  await execute(
    tx,
    sql`update wallet set auto_payout_stopped = false where app_id in (
          select app_id from wallet where auto_payout_stopped
            and app_id in (select app_id from payout where transaction_number = ${transactionNumber})
          order by app_id for no key update)`,
  );
}

/** Whether automatic payouts are stopped for an application that wants them and is not deleted. */
const stopped = sql`auto_payout_stopped and auto_payout_enabled
  and not exists (select from deleted_app where deleted_app.app_id = wallet.app_id)`;

export async function countStoppedAutoPayouts(db: Pool): Promise<bigint> {
  return (await row<{ count: bigint }>(db, sql`select count(*) from wallet where ${stopped}`))!.count;
}

/** The applications whose automatic payouts are stopped, at most 1,000. */
export function listStoppedAutoPayouts(db: Pool): Promise<Array<{ appId: string; destination: string }>> {
  return rows(
    db,
    sql`select app_id as "appId", payout_destination as destination from wallet where ${stopped}
        order by app_id limit 1000`,
  );
}
