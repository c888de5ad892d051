import { sql } from '@granary/shared/postgres/sql';
import { execute, row, rows, type Connection, type Pool } from '@granary/shared/postgres/pool';
import { retriedTransaction } from '@granary/shared/postgres/transaction';
import type { Logger } from '@granary/shared/logger';
import { viewTable } from '../catalog/table-names';

/** The tables that a refresh or a deletion has left and no view uses. */
async function abandonedTables(tx: Connection, appNumber: bigint): Promise<bigint[]> {
  const found = await rows<{ number: bigint }>(
    tx,
    sql`select substr(relname, 3)::bigint as number from pg_class
        where relnamespace = to_regnamespace(${`a_${appNumber}`}) and relkind = 'r' and relname ~ '^v_[0-9]+$'
          and not exists (select from view where app_number = ${appNumber} and 'v_' || table_number = relname)`,
  );
  return found.map(({ number }) => number);
}

export async function nextTableNumber(tx: Connection): Promise<bigint> {
  const found = await row<{ number: bigint }>(tx, sql`select nextval('view_table_number') as number`);
  return found!.number;
}
/** Drops the tables that no view uses any more. One that cannot be locked because of a read is dropped the next time. */
export async function dropAbandoned({ pool, log }: { pool: Pool; log: Logger }, appNumber: bigint): Promise<void> {
  try {
    await retriedTransaction(pool, async (tx) => {
      for (const number of await abandonedTables(tx, appNumber)) {
        await execute(tx, sql`drop table if exists ${viewTable(appNumber, number)}`);
      }
    });
  } catch (error) {
    log.warn({ err: error, app: appNumber.toString() }, 'abandoned tables of views were not dropped');
  }
}
