import { execute, row, rows, type Pool } from '@granary/shared/postgres/pool';
import { sql } from '@granary/shared/postgres/sql';
import { addSource } from '@granary/shared/telemetry/metrics';
import { addressProblem } from '@granary/shared/money/cosmos/address';

/** Money of an application that is gone, which cannot be paid out. */
export interface StrandedWallet {
  appId: string;
  amount: bigint;
  /** The destination that the chain has refused; null: no destination is set. */
  destination: string | null;
}

const isStranded = sql`credits_posted - debits_posted - debits_pending > 0 and (
  payout_destination is null or exists (
    select from payout where payout.app_id = wallet.app_id and trigger = 'auto' and status = 'failed'
      and destination = payout_destination))`;

export function listStranded(db: Pool): Promise<StrandedWallet[]> {
  return rows<StrandedWallet>(
    db,
    sql`select wallet.app_id as "appId", credits_posted - debits_posted - debits_pending as amount,
               payout_destination as destination
        from deleted_app join wallet using (app_id) join account on account.id = wallet.account_id
        where ${isStranded} order by wallet.app_id`,
  );
}

/**
 * Says where the money of a deleted application goes; it is paid out soon. Throws an Error when the application is not
 * deleted, or the address is none of this chain or one of ours.
 */
export async function setLastDestination(db: Pool, appId: string, address: string): Promise<void> {
  const origin = await row<{ prefix: string }>(db, sql`select address_prefix as prefix from wallet_origin`);
  const problem = addressProblem(address, origin?.prefix ?? '');
  if (problem !== undefined) throw new Error(`The address ${problem}`);
  const ours = await row(
    db,
    sql`select from wallet where address = ${address} union all select from chain_sender where address = ${address}`,
  );
  if (ours) throw new Error('The address is that of a wallet of this platform');
  const changed = await execute(
    db,
    sql`update wallet set payout_destination = ${address}, updated_at = clock_timestamp()
        where app_id = ${appId} and exists (select from deleted_app where deleted_app.app_id = ${appId})`,
  );
  if (changed === 0) throw new Error(`There is no deleted application ${appId} with a wallet`);
}

/** Shows at each scrape what is stranded; returns how to end that. */
export function observeStranded(pool: Pool): () => void {
  return addSource({
    families: [
      {
        name: 'granary_stranded_utia',
        help: 'Money in wallets of deleted applications that has no destination.',
        labels: [],
        type: 'gauge',
      },
    ],
    collect: async () => {
      const total = await row<{ amount: number }>(
        pool,
        sql`select coalesce(sum(credits_posted - debits_posted - debits_pending), 0)::float8 as amount
            from deleted_app join wallet using (app_id) join account on account.id = wallet.account_id
            where ${isStranded}`,
      );
      return { granary_stranded_utia: [[[], total!.amount]] };
    },
  });
}
