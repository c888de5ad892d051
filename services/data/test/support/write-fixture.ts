import { createPool, type Pool } from '@granary/shared/postgres/pool';
import { testDatabase } from '@granary/shared/testing/database';
import { log, startDataService, type DataService } from './data-service';

/** One copy of the data service; its pool is large enough for writes that overlap. */
export const startCopy = (url: string, poolSize = 10): Promise<DataService> =>
  startDataService(url, { DATABASE_POOL_SIZE: String(poolSize) });

export interface TwoCopies {
  url: string;
  /** For the test itself. */
  pool: Pool;
  one: DataService;
  two: DataService;
  stop: () => Promise<void>;
}

/** Two copies of the data service on one new database. */
export async function startTwoCopies(): Promise<TwoCopies> {
  const { url } = await testDatabase();
  const pool = createPool({ url, size: 3, applicationName: 'test', log });
  const one = await startCopy(url);
  const two = await startCopy(url);
  const stop = async () => {
    await one.stop();
    await two.stop();
    await pool.end();
  };
  return { url, pool, one, two, stop };
}

export const fields = (rules: object) => JSON.stringify({ fields: rules });
