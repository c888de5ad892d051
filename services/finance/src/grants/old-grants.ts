import type { Logger } from '@granary/shared/logger';
import { row, type Pool } from '@granary/shared/postgres/pool';
import { startScheduledTask } from '@granary/shared/postgres/scheduled-task';
import { sql } from '@granary/shared/postgres/sql';

/** How long a grant is kept after its end, and a deduction; longer than a payment can be repeated. */
const keptDays = 90;
const everyMs = 3_600_000;
/** Rows that one statement removes, at most. */
const rowsMax = 500;

/** Removes what is over for long, in one process of the service at a time. */
export const startRemovingOldGrants = (pool: Pool, log: Logger): { stop(): Promise<void> } =>
  startScheduledTask({
    pool,
    log,
    name: 'old grants',
    everyMs,
    run: async (stopping) => {
      while (!stopping.aborted && (await removeOldGrants(pool)) >= rowsMax);
    },
  });

/**
 * Removes deductions that ended 90 days ago, and grants that did and have no deductions any more; some of each. Returns
 * how many. The histories of users and applications are tables of their own.
 */
export async function removeOldGrants(pool: Pool): Promise<number> {
  const long = sql`clock_timestamp() - interval '1 day' * ${keptDays}`;
  const { removed } = (await row<{ removed: bigint }>(
    pool,
    // Deductions stay until the chain checks (chain-checks.ts) have compared them with their block.
    sql`with deductions as (
          delete from grant_deduction where id in (
            select id from grant_deduction d where state <> 'pending' and updated_at < ${long}
              and not exists (select from chain_watch w where d.height between w.checked_height + 1 and w.height)
            order by updated_at limit ${rowsMax} for update skip locked)
          returning id
        ), grants as (
          delete from user_grant where id in (
            select id from user_grant g where least(revoked_at, expires_at) < ${long}
              and not exists (select from grant_deduction d where d.grant_id = g.id)
            limit ${rowsMax} for update skip locked)
          returning id
        )
        select (select count(*) from deductions) + (select count(*) from grants) as removed`,
  ))!;
  return Number(removed);
}
