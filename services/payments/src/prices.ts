import { append } from '@granary/shared/bus/outbox';
import { execute, row, rows, type Connection, type Pool, type Queryable } from '@granary/shared/postgres/pool';
import { sql } from '@granary/shared/postgres/sql';
import { retriedTransaction } from '@granary/shared/postgres/transaction';

/** The names of prices, with the unit of the amount. */
export const priceNames = ['retention_utia_per_gib_day', 'retention_free_days'] as const;

export type PriceName = (typeof priceNames)[number];
export type PriceList = Record<PriceName, bigint>;

/**
 * Stores a price list as the valid one: changed prices apply from now on, earlier ones are kept. The valid prices are
 * published also if none has changed, so that a reader which has lost them gets them again. Replicas of the service may
 * call it concurrently.
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
    await publishPrices(tx, prices);
  });
}

/** Publishes the valid prices, with the time since which all of them are. The table of prices is locked. */
async function publishPrices(tx: Connection, prices: PriceList): Promise<void> {
  const { sequence, since } = (await row<{ sequence: bigint; since: Date }>(
    tx,
    sql`update price_event set sequence = sequence + 1
        returning sequence, (select max(valid_from) from price where name = any(${[...priceNames]}::text[])) as since`,
  ))!;
  const payload = {
    retention_utia_per_gib_day: prices.retention_utia_per_gib_day.toString(),
    retention_free_days: Number(prices.retention_free_days),
    since: since.toISOString(),
  };
  const about = { topic: 'prices', key: 'prices', aggregateId: 'prices', aggregateSequence: sequence };
  await append(tx, [{ ...about, type: 'prices.set', payload }]);
}

/** The latest price of each name; empty before the first list was stored. */
async function readPrices(db: Queryable): Promise<Partial<PriceList>> {
  const prices = await rows<{ name: PriceName; amount: bigint }>(
    db,
    sql`select distinct on (name) name, amount from price where name = any(${[...priceNames]}::text[])
      order by name, valid_from desc`,
  );
  return Object.fromEntries(prices.map(({ name, amount }) => [name, amount]));
}
