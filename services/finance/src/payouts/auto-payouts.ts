import { rows, type Pool } from '@granary/shared/postgres/pool';
import { sql, type Sql } from '@granary/shared/postgres/sql';
import { retriedTransaction } from '@granary/shared/postgres/transaction';
import { reservePayouts, type PayoutRules } from './reserve-payouts';

/** Payouts that one transaction starts. */
const startedMax = 100;

export interface AutoPayoutOptions {
  pool: Pool;
  rules: PayoutRules;
  /** The minimum time between two automatic payouts of an application, because the platform pays the fees. */
  intervalMs: number;
}

/**
 * Starts payouts of all that is available, for applications that have turned them on, have a destination and have
 * reached their threshold; of `appIds` only if they are given. Those of deleted applications are last payouts, see
 * closing. Returns how many were started.
 */
export async function startAutoPayouts(
  { pool, rules, intervalMs }: AutoPayoutOptions,
  appIds?: readonly string[],
): Promise<number> {
  const condition = appIds === undefined ? sql`` : sql` and wallet.app_id = any(${[...appIds]})`;
  return retriedTransaction(pool, async (tx) => {
    const ready = await rows<{ appId: string }>(
      tx,
      sql`select wallet.app_id as "appId" from wallet join account on account.id = wallet.account_id
          where auto_payout_enabled and payout_destination is not null
            and not exists (select from deleted_app where deleted_app.app_id = wallet.app_id)
            and credits_posted - debits_posted - debits_pending - locked_balance
                >= greatest(payout_threshold, min_payout, ${rules.floorUtia}, 1)
            and not ${hasRecentAutoPayout(sql`wallet.app_id`, intervalMs)} and not auto_payout_stopped${condition}
          order by wallet.app_id limit ${startedMax} for no key update of wallet skip locked`,
    );
    if (ready.length === 0) return 0;
    // Again, now that their wallets are locked: another process may have started some meanwhile.
    const due = await rows<{ appId: string }>(
      tx,
      sql`select app_id as "appId" from unnest(${ready.map(({ appId }) => appId)}::text[]) ready(app_id)
          where not ${hasRecentAutoPayout(sql`ready.app_id`, intervalMs)}`,
    );
    if (due.length === 0) return 0;
    const requests = due.map(({ appId }) => ({ appId, trigger: 'auto' as const }));
    const reserved = await reservePayouts(tx, requests, rules);
    return reserved.filter((each) => !(each instanceof Error)).length;
  });
}

/** Whether an application has an automatic payout under way, or had one lately. */
export const hasRecentAutoPayout = (appId: Sql, intervalMs: number): Sql =>
  sql`exists (
    select from payout where payout.app_id = ${appId} and trigger = 'auto'
      and (status in ('pending', 'broadcast') or created_at > now() - ${intervalMs} * interval '1 millisecond')
  )`;
