import { randomBytes } from 'node:crypto';
import { cachedFor } from '@granary/shared/concurrency/ttl-cache';
import type { Logger } from '@granary/shared/logger';
import { execute, rows, type Pool } from '@granary/shared/postgres/pool';
import { startScheduledTask } from '@granary/shared/postgres/scheduled-task';
import { sql } from '@granary/shared/postgres/sql';
import { retriedTransaction } from '@granary/shared/postgres/transaction';

/** How long a process does not know of a key that another one has made. */
const cachedMs = 5_000;
/** The time from storing a new key until it makes quotes. By then, all processes know the key. */
const leadMs = 60_000;
/**
 * How long a key makes quotes, and how long after that its quotes are read: longer than one can be paid and presented.
 */
const madeWithMs = 30 * 86_400_000;
const readMs = 2 * 86_400_000;
const rotateEveryMs = 3_600_000;

/** The keys of the MAC in quotes: the same for all processes of the service, and after restarts. */
export interface QuoteKeys {
  /** The one that new quotes are made with. */
  current(): Promise<Buffer>;
  /** All keys whose quotes may still be presented, the current key first. */
  accepted(): Promise<readonly Buffer[]>;
}

/** The stored keys; the first is made where there is none, also after all were deleted. */
export function storedQuoteKeys(pool: Pool): QuoteKeys {
  const load = cachedFor(cachedMs, async () => {
    const keys = await readKeys(pool);
    if (keys.length > 0) return keys;
    await addKey(pool, { olderThanMs: madeWithMs, leadMs: 0 });
    return readKeys(pool);
  });
  return { current: async () => (await load())[0]!, accepted: load };
}

async function readKeys(pool: Pool): Promise<Buffer[]> {
  const keys = await rows<{ key: Buffer }>(
    pool,
    sql`select key from quote_key order by valid_from <= clock_timestamp() desc, valid_from desc`,
  );
  return keys.map(({ key }) => key);
}

/** Adds a key unless there is one that is not older than `olderThanMs`. */
async function addKey(
  pool: Pool,
  { olderThanMs, leadMs: lead }: { olderThanMs: number; leadMs: number },
): Promise<void> {
  await retriedTransaction(pool, async (tx) => {
    await tx.query('lock table quote_key in share row exclusive mode');
    await execute(
      tx,
      sql`insert into quote_key (key, valid_from)
          select ${randomBytes(32)}, clock_timestamp() + ${lead} * interval '1 millisecond'
          where not exists (select from quote_key where valid_from > ${before(olderThanMs)})`,
    );
  });
}

const before = (ms: number) => sql`clock_timestamp() - ${ms} * interval '1 millisecond'`;

/** Makes a new key when the latest is old, and deletes those whose quotes are good for nothing any more. */
export async function rotateQuoteKeys(pool: Pool): Promise<void> {
  await addKey(pool, { olderThanMs: madeWithMs, leadMs });
  await execute(
    pool,
    sql`delete from quote_key where revision in (
          select revision from (select revision, lead(valid_from) over (order by valid_from) as replaced_at from quote_key) all_keys
          where replaced_at < ${before(readMs)})`,
  );
}

/** Does that in one process of the service at a time. */
export const startQuoteKeyRotation = (pool: Pool, log: Logger): { stop(): Promise<void> } =>
  startScheduledTask({
    pool,
    log,
    name: 'quote keys',
    everyMs: rotateEveryMs,
    run: () => rotateQuoteKeys(pool),
  });
