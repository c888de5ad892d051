import type { Logger } from '@granary/shared/logger';
import { row, rows, type Connection, type Pool } from '@granary/shared/postgres/pool';
import { startScheduledTask } from '@granary/shared/postgres/scheduled-task';
import { sql, type Sql } from '@granary/shared/postgres/sql';
import { retriedTransaction } from '@granary/shared/postgres/transaction';
import { hasRecentAutoPayout } from '../payouts/auto-payouts';
import { reservePayouts, type PayoutRules } from '../payouts/reserve-payouts';
import { chargeDeletedApp, openFeesAccount } from '../usage/retention-charges';

const everyMs = 60_000;
/** Applications that one round pays out. */
const appsMax = 100;

export interface LastPayoutOptions {
  pool: Pool;
  rules: PayoutRules;
  /** The minimum time between two automatic payouts of an application, which may still receive money. */
  intervalMs: number;
  now: () => Date;
  log: Logger;
}

/** Pays out the wallets of applications that are gone, in one process of the service at a time. */
export function startLastPayouts(options: LastPayoutOptions & { everyMs?: number | undefined }): {
  stop(): Promise<void>;
} {
  const { pool, log } = options;
  return startScheduledTask({
    pool,
    log,
    name: 'last payouts',
    everyMs: options.everyMs ?? everyMs,
    run: async (stopping) => {
      await openFeesAccount(pool);
      for (const appId of stopping.aborted ? [] : await findReady(options)) {
        if (stopping.aborted) return;
        await payOut(options, appId).catch((error: unknown) => {
          log.error({ err: error, app: appId }, 'the wallet of a deleted application cannot be paid out');
        });
      }
    },
  });
}

/** A payout to an address that the chain has refused is not tried again: each attempt costs a fee. */
const canBePaid = (intervalMs: number): Sql => sql`payout_destination is not null
  and not ${hasRecentAutoPayout(sql`wallet.app_id`, intervalMs)}
  and not exists (
    select from payout where payout.app_id = wallet.app_id and trigger = 'auto' and status = 'failed'
      and destination = payout_destination)`;

async function findReady({ pool, rules, intervalMs }: LastPayoutOptions): Promise<string[]> {
  const wallets = await rows<{ appId: string }>(
    pool,
    sql`select wallet.app_id as "appId" from deleted_app join wallet using (app_id)
          join account on account.id = wallet.account_id
        where credits_posted - debits_posted - debits_pending >= greatest(${rules.floorUtia}, 1)
          and ${canBePaid(intervalMs)} order by wallet.app_id limit ${appsMax}`,
  );
  return wallets.map(({ appId }) => appId);
}

/**
 * Charges what the application owes for retention, then starts a payout of all that is left, also of what is locked, in
 * one transaction. A rest below the floor stays.
 */
function payOut({ pool, rules, intervalMs, now, log }: LastPayoutOptions, appId: string): Promise<void> {
  return retriedTransaction(pool, async (tx) => {
    if (!(await lockWallet(tx, appId, intervalMs))) return;
    await chargeDeletedApp(tx, appId, now(), log);
    const [payout] = await reservePayouts(tx, [{ appId, trigger: 'auto', isLast: true }], rules);
    if (payout instanceof Error) return;
    log.info({ app: appId, amount: payout!.amountUtia.toString() }, 'the wallet of a deleted application is paid out');
  });
}

/**
 * Locks a wallet before the accounts of the ledger, in the same order as other payouts. Returns false when the wallet
 * can no longer be paid out, for example because another process has started a payout.
 */
async function lockWallet(tx: Connection, appId: string, intervalMs: number): Promise<boolean> {
  await row(tx, sql`select from wallet where app_id = ${appId} for no key update`);
  const wallet = await row(tx, sql`select from wallet where app_id = ${appId} and ${canBePaid(intervalMs)}`);
  return wallet !== undefined;
}
