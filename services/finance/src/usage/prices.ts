import { parseUtia } from '@granary/shared/money';
import type { PaymentsDefinition } from '@granary/shared/gen/granary/payments/v1/Payments';
import { newCall, type Client } from '@granary/shared/rpc/types';
import { unavailable } from '@granary/shared/errors';
import type { Logger } from '@granary/shared/logger';
import { execute, rows, type Pool } from '@granary/shared/postgres/pool';
import { sql } from '@granary/shared/postgres/sql';
import type { PriceList, PricePeriod } from './retention';

const readTimeoutMs = 1_000;
const freshMs = 60_000;
/** Pause after a failure. */
const retryMs = 5_000;

export interface Prices {
  /** The retention prices over time. Throws UNAVAILABLE only if `payments` has never been reached. */
  list(): Promise<PriceList>;
}

/**
 * The prices of the payments service, read at most once a minute. Each change is stored with its time, so that accrued
 * costs keep their price and the last price is known while `payments` is unreachable.
 */
export function createPrices(options: {
  pool: Pool;
  payments: Client<PaymentsDefinition>;
  now: () => Date;
  log: Logger;
}): Prices {
  const { pool, payments, now, log } = options;
  // Not a TtlCache: its lifetime depends on whether `payments` answered, and the last known list is served after a failure.
  let known: PriceList | undefined;
  let validUntilMs = -Infinity;
  let looking: Promise<PriceList> | undefined;

  const refresh = async (): Promise<PriceList> => {
    try {
      await write(pool, now(), await readPrices(payments));
      validUntilMs = now().getTime() + freshMs;
    } catch (error) {
      log.warn({ err: error }, 'prices could not be read; the last known ones are used');
      validUntilMs = now().getTime() + retryMs;
    }
    const [first, ...rest] = await read(pool);
    if (!first) {
      validUntilMs = -Infinity;
      throw unavailable('Prices are not available yet; retry later');
    }
    return (known = [first, ...rest]);
  };

  return {
    list: async () => {
      if (known && now().getTime() < validUntilMs) return known;
      looking ??= refresh().finally(() => (looking = undefined));
      return looking;
    },
  };
}

async function readPrices(payments: Client<PaymentsDefinition>): Promise<Omit<PricePeriod, 'sinceMs'>> {
  const found = await payments.getPrices({}, newCall('finance-prices', readTimeoutMs));
  return { utiaPerGibDay: parseUtia(found.retentionUtiaPerGibDay), freeDays: found.retentionFreeDays };
}

async function write(pool: Pool, at: Date, price: Omit<PricePeriod, 'sinceMs'>): Promise<void> {
  await execute(
    pool,
    sql`insert into retention_price (since, utia_per_gib_day, free_days)
        select greatest(${at}::timestamptz, (select max(since) from retention_price)), ${price.utiaPerGibDay}::bigint, ${price.freeDays}::int
        where not exists (
          select from (select utia_per_gib_day, free_days from retention_price order by number desc limit 1) last
          where last.utia_per_gib_day = ${price.utiaPerGibDay} and last.free_days = ${price.freeDays})`,
  );
}

async function read(pool: Pool): Promise<PricePeriod[]> {
  const found = await rows<{ since: Date; utiaPerGibDay: bigint; freeDays: number }>(
    pool,
    sql`select since, utia_per_gib_day as "utiaPerGibDay", free_days as "freeDays" from retention_price order by number`,
  );
  return found.map(({ since, ...price }) => ({ ...price, sinceMs: since.getTime() }));
}
