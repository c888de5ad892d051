import { append } from '@granary/shared/bus/outbox';
import { databaseTime } from '@granary/shared/postgres/clock';
import { rows, type Connection, type Pool } from '@granary/shared/postgres/pool';
import { sql, type Sql } from '@granary/shared/postgres/sql';
import { retriedTransaction } from '@granary/shared/postgres/transaction';
import { findImports } from './import-state';
import { endEvent } from './import-task';

/** Imports that one transaction deletes because they have expired. */
const forgottenAtOnce = 100;

/**
 * Deletes the imports that meet a condition, in the order of `rest`, and what is known of them. The tasks of open ones
 * fail for a reason. Returns how many they were.
 */
export async function removeImports(tx: Connection, condition: Sql, rest: Sql, reason: string): Promise<number> {
  const removed = await findImports(tx, condition, rest);
  if (removed.length === 0) return 0;
  const tickets = removed.map(({ ticketId }) => ticketId);
  const apps = await rows<{ number: bigint; app_id: string }>(
    tx,
    sql`with gone as (delete from import where ticket_id = any(${tickets}) returning app_number)
        select number, app_id from application where number in (select app_number from gone)`,
  );
  const appIds = new Map(apps.map(({ number, app_id: appId }) => [number, appId]));
  const updatedAt = await databaseTime(tx);
  const open = removed.filter(({ status }) => status === 'open');
  await append(
    tx,
    open.map((state) => endEvent(appIds.get(state.appNumber)!, { ...state, status: 'failed', updatedAt }, reason)),
  );
  return removed.length;
}

/**
 * Deletes imports for which nothing came for too long, or that ended long ago. `stopping` ends it between two
 * transactions.
 */
export async function forgetImports(pool: Pool, stopping: AbortSignal): Promise<void> {
  const oldest = sql`order by expires_at limit ${forgottenAtOnce} for update skip locked`;
  let removed: number;
  do {
    removed = await retriedTransaction(pool, (tx) =>
      removeImports(tx, sql`expires_at <= now()`, oldest, 'Nothing more of the file came for too long'),
    );
  } while (removed === forgottenAtOnce && !stopping.aborted);
}
