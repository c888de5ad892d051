import type { Logger } from '../logger';
import { execute, rows, type Connection, type Pool } from '../postgres/pool';
import { startScheduledTask } from '../postgres/scheduled-task';
import { sql } from '../postgres/sql';
import { retriedTransaction } from '../postgres/transaction';

/** Answers that one transaction deletes, and such transactions in one run. */
const trimRows = 1_000;
const trimRounds = 500;
const trimEveryMs = 60_000;

/** Deletes answers older than 24 hours, a bounded number at a time. */
export async function trimAnswers(pool: Pool, stopping?: AbortSignal): Promise<void> {
  for (let round = 0; round < trimRounds && stopping?.aborted !== true; round++) {
    if ((await retriedTransaction(pool, trimSome)) < trimRows) return;
  }
}

/**
 * Changes lock the row of a key before the counter of its owner. So the counters are locked first, in an order, and
 * rows that a change has locked are left for the next run: neither waits for the other in a circle.
 */
async function trimSome(tx: Connection): Promise<number> {
  const old = await rows<{ place: string; owner: string }>(
    tx,
    sql`select ctid::text as place, substring(caller from '^[^/]*(?:/[^/]*)?') as owner
        from idempotency where at <= now() - interval '24 hours' order by at limit ${trimRows}`,
  );
  if (old.length === 0) return 0;
  const owners = [...new Set(old.map(({ owner }) => owner))];
  await rows(tx, sql`select from idempotency_usage where owner = any(${owners}) order by owner for update`);
  await execute(
    tx,
    sql`with unused as (
          select ctid from idempotency where ctid = any(${old.map(({ place }) => place)}::tid[])
            and at <= now() - interval '24 hours' for update skip locked),
        gone as (
          delete from idempotency where ctid in (select ctid from unused)
          returning substring(caller from '^[^/]*(?:/[^/]*)?') as owner, octet_length(answer) as bytes),
        sums as (select owner, count(*) as keys, sum(bytes) as bytes from gone group by owner)
        update idempotency_usage u set keys = greatest(u.keys - s.keys, 0), answer_bytes = greatest(u.answer_bytes - s.bytes, 0)
        from sums s where u.owner = s.owner`,
  );
  return old.length;
}

/** Deletes old answers every minute, in one process of the service at a time. */
export const startTrimmingAnswers = (pool: Pool, log: Logger): { stop(): Promise<void> } =>
  startScheduledTask({
    pool,
    log,
    name: 'idempotency',
    everyMs: trimEveryMs,
    run: (stopping) => trimAnswers(pool, stopping),
  });
