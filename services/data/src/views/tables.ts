import { sql } from '@granary/shared/postgres/sql';
import { row, type Connection, type Pool } from '@granary/shared/postgres/pool';
import type { Logger } from '@granary/shared/logger';
import { dropAbandoned, type ReplacedTables } from '../tables/abandoned';

export async function nextTableNumber(tx: Connection): Promise<bigint> {
  const found = await row<{ number: bigint }>(tx, sql`select nextval('view_table_number') as number`);
  return found!.number;
}

const viewTables: ReplacedTables = {
  prefix: 'v_',
  inUse: (appNumber) => sql`select table_number from view where app_number = ${appNumber} and table_number is not null`,
};

/** Drops the tables that a refresh or a deletion has left and no view uses. */
export const dropAbandonedViews = (context: { pool: Pool; log: Logger }, appNumber: bigint): Promise<void> =>
  dropAbandoned(context, appNumber, viewTables);
