import { degraded, healthy, type Check } from '@granary/shared/health/check';
import { row, type Pool } from '@granary/shared/postgres/pool';
import { sql } from '@granary/shared/postgres/sql';

/** Broken views are read as ever, at the price of their computation. */
export const brokenViewsCheck =
  (pool: Pool): Check =>
  async () => {
    const counts = await row<{ broken: bigint }>(
      pool,
      sql`select count(*) as broken from view where refresh_mode = 'live' and status = 'broken'`,
    );
    const broken = Number(counts!.broken);
    return broken === 0 ? healthy : degraded(`${broken} live views are broken, and being built again`);
  };
