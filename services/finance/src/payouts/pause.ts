import { row, type Queryable } from '@granary/shared/postgres/pool';
import { sql } from '@granary/shared/postgres/sql';

/**
 * Whether payouts are paused: reconciliation has found a difference that no person has resolved. To be read in the
 * transaction that signs a payout or under the lease of the task that does, before each signature.
 */
export async function arePayoutsPaused(db: Queryable): Promise<boolean> {
  return (await row(db, sql`select from difference where resolved_at is null limit 1`)) !== undefined;
}
