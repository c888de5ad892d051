import { row, type Pool, type Queryable } from '../postgres/pool';
import { sql } from '../postgres/sql';
import { retriedTransaction } from '../postgres/transaction';

/**
 * What makes transaction ids comparable: the cluster, by its system identifier, and its timeline. A dump that is
 * restored elsewhere has another identifier; a recovery to a point in time or the promotion of a copy keeps the
 * identifier, but may give ids out again that were in use, on a new timeline. Both functions may be called by every
 * role. (The timeline of pg_control_checkpoint() is the one of the last checkpoint, hence the name of the WAL file.)
 */
const cluster = sql`(select system_identifier from pg_control_system())::text
  || '/' || left(pg_walfile_name(pg_current_wal_lsn()), 8)`;

async function look(db: Queryable): Promise<{ epoch: bigint | null; same: boolean | null }> {
  const found = await row<{ epoch: bigint | null; same: boolean | null }>(
    db,
    sql`select latest.epoch, latest.cluster = here.cluster as same
      from (select ${cluster} as cluster) here
      left join lateral (select epoch, cluster from outbox_epoch order by epoch desc limit 1) latest on true`,
  );
  return found!;
}

/**
 * The epoch that positions in the outbox belong to now. In a cluster that the outbox has not lived in, a new one
 * begins: what is there gets the transaction id 0, so that every consumer is given all of it again, before
 * everything that this cluster writes. What it had applied already its inbox tells.
 */
export async function prepareOutbox(pool: Pool): Promise<bigint> {
  const seen = await look(pool);
  if (seen.same && seen.epoch !== null) return seen.epoch;
  return retriedTransaction(
    pool,
    async (tx) => {
      // Waits for the writers under way; nobody appends until the new epoch is there.
      await tx.query('lock table outbox in share row exclusive mode');
      const { epoch, same } = await look(tx);
      if (same && epoch !== null) return epoch;
      const next = (epoch ?? 0n) + 1n;
      await tx.query(sql`insert into outbox_epoch (epoch, cluster) values (${next}, ${cluster})`.compile());
      await tx.query(`update outbox set xid = '0' where xid <> '0'`);
      return next;
    },
    { statementTimeoutMs: 60_000 },
  );
}

/** A cluster that changes is noticed within this; nothing is lost meanwhile, for a new epoch is read from its start. */
const epochSeenEveryMs = 1_000;

/** Tells the epoch, of late or, when somebody knows a later one, of now. */
export function watchEpoch(pool: Pool): (asked: string) => Promise<string> {
  let known: { epoch: string; seenMs: number } | undefined;
  return async (asked) => {
    if (!known || BigInt(asked) > BigInt(known.epoch) || performance.now() - known.seenMs > epochSeenEveryMs) {
      known = { epoch: (await prepareOutbox(pool)).toString(), seenMs: performance.now() };
    }
    return known.epoch;
  };
}
