import { fromPostgres } from './errors';
import { execute, type Pool } from './pool';
import { sql } from './sql';
import { transaction } from './transaction';

/**
 * Takes 16 MiB of the database's disk, as much as a file of its write-ahead log, and gives them back at once. Throws
 * STORAGE_FULL where there is not so much.
 */
export async function probeRoom(pool: Pool): Promise<void> {
  try {
    await transaction(pool, async (tx) => {
      await execute(tx, sql`create temporary table room (bytes text storage external) on commit drop`);
      await execute(tx, sql`insert into room select repeat('x', 1048576) from generate_series(1, 16)`);
    });
  } catch (error) {
    throw fromPostgres(error) ?? error;
  }
}
