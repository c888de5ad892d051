import { createPool, type Pool } from '@granary/shared/postgres/pool';
import { serviceDatabase } from '@granary/testing/service-database';
import { dataSchema } from '../../src/service';
import { log, startDataService, type App, type DataService } from './data-service';

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
  const { url } = await serviceDatabase(dataSchema);
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

/** The process id of another session of the database that matches a condition on pg_stat_activity. */
export async function sessionWhere(pool: Pool, where: string): Promise<number | undefined> {
  const { rows } = await pool.query<{ pid: number }>(
    `select pid from pg_stat_activity where datname = current_database() and pid <> pg_backend_pid() and ${where}`,
  );
  return rows[0]?.pid;
}

/** The number of a collection in the catalog. */
export async function collectionNumber(pool: Pool, app: App, name: string): Promise<bigint> {
  const { rows } = await pool.query<{ number: bigint }>(
    'select number from collection where app_number = $1 and name = $2',
    [app.number, name],
  );
  return rows[0]!.number;
}
