import { row, type Pool, type Queryable } from '../postgres/pool';
import { sql } from '../postgres/sql';
import { retriedTransaction } from '../postgres/transaction';

/**
 * The scope in which transaction ids are comparable: the cluster, by its system identifier, and its timeline. A dump
 * that is restored elsewhere has another identifier; a point-in-time recovery or the promotion of a standby keeps the
 * identifier, but may reuse transaction ids, on a new timeline. Every role may call both functions. (The name of the
 * WAL file, because the timeline of pg_control_checkpoint() is that of the last checkpoint.)
 */
const cluster = sql`(select system_identifier from pg_control_system())::text
  || '/' || left(pg_walfile_name(pg_current_wal_lsn()), 8)`;

async function readEpoch(db: Queryable): Promise<{ epoch: bigint | null; same: boolean | null }> {
  const latest = await row<{ epoch: bigint | null; same: boolean | null }>(
    db,
    sql`select latest.epoch, latest.cluster = here.cluster as same
      from (select ${cluster} as cluster) here
      left join lateral (select epoch, cluster from outbox_epoch order by epoch desc limit 1) latest on true`,
  );
  return latest!;
}

/**
 * The current epoch of positions in the outbox. In a cluster that is new to the outbox a new epoch begins: existing
 * events get the transaction id 0, so that every consumer reads all of them again, before everything that this cluster
 * writes. The inbox filters those that it has applied.
 */
export async function prepareOutbox(pool: Pool): Promise<bigint> {
  const seen = await readEpoch(pool);
  if (seen.same && seen.epoch !== null) return seen.epoch;
  return retriedTransaction(
    pool,
    async (tx) => {
      // Waits for writers under way; nothing is appended until the new epoch is committed.
      await tx.query('lock table outbox in share row exclusive mode');
      const { epoch, same } = await readEpoch(tx);
      if (same && epoch !== null) return epoch;
      const next = (epoch ?? 0n) + 1n;
      await tx.query(sql`insert into outbox_epoch (epoch, cluster) values (${next}, ${cluster})`.compile());
      await tx.query(`update outbox set xid = '0' where xid <> '0'`);
      return next;
    },
    { statementTimeoutMs: 60_000 },
  );
}

/** How long an epoch is cached. Nothing is lost meanwhile: a new epoch is read from its start. */
const epochTtlMs = 1_000;

/** Returns the epoch, cached unless the caller knows a later one. */
export function watchEpoch(pool: Pool): (known: string) => Promise<string> {
  let current: { epoch: string; seenMs: number } | undefined;
  return async (callersEpoch) => {
    if (!current || BigInt(callersEpoch) > BigInt(current.epoch) || performance.now() - current.seenMs > epochTtlMs) {
      current = { epoch: (await prepareOutbox(pool)).toString(), seenMs: performance.now() };
    }
    return current.epoch;
  };
}
