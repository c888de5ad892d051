import { randomBytes } from 'node:crypto';
import { execute, row, type Pool } from '@granary/shared/postgres/pool';
import { sql } from '@granary/shared/postgres/sql';

/** The key of the MAC in quotes: the same for all processes of the service, and after restarts. Made where there is none. */
export async function openQuoteKey(pool: Pool): Promise<Buffer> {
  await execute(pool, sql`insert into quote_key (key) values (${randomBytes(32)}) on conflict do nothing`);
  return (await row<{ key: Buffer }>(pool, sql`select key from quote_key`))!.key;
}
