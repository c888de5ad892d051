import { chargeDuePeriods } from '@granary/finance/usage/retention-charges';
import type { PriceList } from '@granary/finance/usage/retention';
import { createLogger } from '@granary/shared/logger';
import { createPool } from '@granary/shared/postgres/pool';

export interface ChargingOrders {
  url: string;
  utiaPerGibDay: string;
  /** The time until which periods are charged. */
  nowMs: number;
}

/** A process to be killed, that charges all that is due and then ends. */
process.once('message', (orders: ChargingOrders) => void charge(orders));

async function charge({ url, utiaPerGibDay, nowMs }: ChargingOrders): Promise<void> {
  const log = createLogger('test', 'silent');
  const pool = createPool({ url, size: 2, applicationName: 'charges', log });
  const list: PriceList = [{ sinceMs: 0, utiaPerGibDay: BigInt(utiaPerGibDay), freeDays: 30 }];
  const options = { pool, log, pricesIn: () => ({ list: () => Promise.resolve(list) }), now: () => new Date(nowMs) };
  while ((await chargeDuePeriods(options)) > 0);
  await pool.end();
  process.disconnect();
}
