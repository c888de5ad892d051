import { unavailable } from '@granary/shared/errors';
import { execute, rows, type Connection, type Queryable } from '@granary/shared/postgres/pool';
import { sql } from '@granary/shared/postgres/sql';
import type { PriceList, PricePeriod } from './retention';

export interface Prices {
  /** The retention prices over time. Throws UNAVAILABLE if payments has not published any yet. */
  list(): Promise<PriceList>;
}

/** The prices that payments has published, as read in this transaction or pool. */
export type PricesIn = (db: Queryable) => Prices;

export const storedPrices: PricesIn = (db) => {
  return {
    list: async () => {
      const [first, ...rest] = await read(db);
      if (!first) throw unavailable('Prices are not available yet; retry later');
      return [first, ...rest];
    },
  };
};

/** Reads the prices at most once, for work that needs them for each of many collections. */
export function readOnce(prices: Prices): Prices {
  let list: Promise<PriceList> | undefined;
  return { list: () => (list ??= prices.list()) };
}

/**
 * Stores the prices that are valid since a time, unless they are the last ones. What was settled before they were known
 * keeps its price.
 */
export async function applyPrices(tx: Connection, { sinceMs, utiaPerGibDay, freeDays }: PricePeriod): Promise<void> {
  await execute(
    tx,
    sql`insert into retention_price (since, utia_per_gib_day, free_days)
        select greatest(${new Date(sinceMs)}::timestamptz, (select max(since) from retention_price)), ${utiaPerGibDay}::bigint,
          ${freeDays}::int
        where not exists (
          select from (select utia_per_gib_day, free_days from retention_price order by number desc limit 1) last
          where last.utia_per_gib_day = ${utiaPerGibDay} and last.free_days = ${freeDays})`,
  );
}

async function read(db: Queryable): Promise<PricePeriod[]> {
  const periods = await rows<{ since: Date; utiaPerGibDay: bigint; freeDays: number }>(
    db,
    sql`select since, utia_per_gib_day as "utiaPerGibDay", free_days as "freeDays" from retention_price order by number`,
  );
  return periods.map(({ since, ...price }) => ({ ...price, sinceMs: since.getTime() }));
}
