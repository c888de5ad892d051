import { execute, rows, type Pool, type Queryable } from '@granary/shared/postgres/pool';
import { sql } from '@granary/shared/postgres/sql';
import { retriedTransaction } from '@granary/shared/postgres/transaction';

/** The names of prices, with the unit of the amount. */
export const priceNames = ['retention_utia_per_gib_day', 'retention_free_days'] as const;

export type PriceName = (typeof priceNames)[number];
export type PriceList = Record<PriceName, bigint>;

/**
 * Stores a price list as the valid one: changed prices apply from now on, earlier ones are kept. Replicas of the
 * service may call it concurrently.
 */
export async function setPrices(pool: Pool, prices: PriceList, now: Date): Promise<void> {
  await retriedTransaction(pool, async (tx) => {
    await tx.query('lock table price in share row exclusive mode');
    const latest = await readPrices(tx);
    for (const name of priceNames) {
      if (latest[name] === prices[name]) continue;
      // Later than the latest even if a clock went back; otherwise the older price would still be the latest.
      await execute(
        tx,
        sql`insert into price (name, amount, valid_from)
          select ${name}, ${prices[name]}::bigint,
            greatest(${now}::timestamptz, max(valid_from) + interval '1 microsecond')
          from price where name = ${name}`,
      );
    }
  });
}

/** The latest price of each name; empty before the first list was stored. */
export async function readPrices(db: Queryable): Promise<Partial<PriceList>> {
  const found = await rows<{ name: PriceName; amount: bigint }>(
    db,
    sql`select distinct on (name) name, amount from price where name = any(${[...priceNames]}::text[])
      order by name, valid_from desc`,
  );
  return Object.fromEntries(found.map(({ name, amount }) => [name, amount]));
}
