import { execute, rows, type Pool } from '@granary/shared/postgres/pool';
import { sql } from '@granary/shared/postgres/sql';

/** Collections that one statement measures. */
const measuredMax = 500;

/**
 * Measures what the indexes of each collection take, and stores it where it has changed. The usage events carry it.
 * Each row is updated by a statement of its own: a row of the catalog may be locked by a commit, and waiting for it
 * must hold no other one.
 */
export async function measureIndexes(pool: Pool, stopping?: AbortSignal): Promise<void> {
  for (let after = 0n; !stopping?.aborted;) {
    const measurements = await measure(pool, after);
    for (const { number, bytes, isChanged } of measurements) {
      if (stopping?.aborted) return;
      if (isChanged) await store(pool, number, bytes);
    }
    if (measurements.length < measuredMax) return;
    after = measurements.at(-1)!.number;
  }
}

interface Measured {
  number: bigint;
  bytes: bigint;
  isChanged: boolean;
}

/**
 * The next collections after a number. The sizes are those of the files, under names that are made from our numbers;
 * those of an empty collection do not count: its free days begin with its first bytes.
 */
function measure(pool: Pool, after: bigint): Promise<Measured[]> {
  return rows<Measured>(
    pool,
    sql`select c.number, measured.bytes, measured.bytes <> c.index_bytes as "isChanged"
        from (select number, app_number, size_bytes, index_bytes from collection
              where number > ${after} and deleted_at is null order by number limit ${measuredMax}) c
        cross join lateral (
          select coalesce(sum(pg_relation_size(to_regclass('a_' || c.app_number || '.' || prefix || i.number))), 0)::int8 as bytes
          from document_index i cross join unnest(array['i_', 'n_', 'q_']) prefix
          where i.collection_number = c.number and c.size_bytes > 0
        ) measured
        order by c.number`,
  );
}

async function store(pool: Pool, number: bigint, bytes: bigint): Promise<void> {
  await execute(
    pool,
    sql`update collection set index_bytes = ${bytes} where number = ${number} and deleted_at is null`,
  );
}
