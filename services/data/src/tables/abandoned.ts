import { execute, rows, type Pool } from '@granary/shared/postgres/pool';
import { named, sql, type Sql } from '@granary/shared/postgres/sql';
import { retriedTransaction } from '@granary/shared/postgres/transaction';
import type { Logger } from '@granary/shared/logger';

/** A kind of table that is replaced as a whole: its name is the prefix and a number. */
export interface ReplacedTables {
  prefix: 'v_' | 'w_' | 'j_' | 'd_';
  /** Selects the numbers of the tables of an app that are in use, none of them null. */
  inUse: (appNumber: bigint) => Sql;
  /** How often and how long a lock is waited for, where somebody waits for the end. */
  locking?: { lockTimeoutMs: number; attempts: number };
}

/**
 * Drops the tables that a replacement or a deletion has left and nothing uses any more; of these only those in
 * `mayDrop`, where it is given. Returns the numbers of the others. One that cannot be locked because of a read is
 * dropped the next time; then it returns undefined.
 */
export async function dropAbandoned(
  { pool, log }: { pool: Pool; log: Logger },
  appNumber: bigint,
  { prefix, inUse, locking }: ReplacedTables,
  mayDrop?: ReadonlySet<bigint>,
): Promise<ReadonlySet<bigint> | undefined> {
  try {
    return await retriedTransaction(
      pool,
      async (tx) => {
        const abandoned = await rows<{ number: bigint }>(
          tx,
          sql`select substr(relname, 3)::bigint as number from pg_class
            where relnamespace = to_regnamespace(${`a_${appNumber}`}) and relkind = 'r' and relname ~ ${`^${prefix}[0-9]+$`}
              and substr(relname, 3)::bigint not in (${inUse(appNumber)})`,
        );
        const left = new Set<bigint>();
        for (const { number } of abandoned) {
          if (mayDrop?.has(number) === false) left.add(number);
          else await execute(tx, sql`drop table if exists ${named('a_', appNumber, `.${prefix}`, number)}`);
        }
        return left;
      },
      locking,
    );
  } catch (error) {
    log.warn({ err: error, app: appNumber.toString(), prefix }, 'abandoned tables were not dropped');
    return undefined;
  }
}
