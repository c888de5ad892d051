import { readConfig } from '@granary/shared/config';
import { createLogger } from '@granary/shared/logger';
import { createPool, rows, type Pool } from '@granary/shared/postgres/pool';
import { sql } from '@granary/shared/postgres/sql';
import { runMigrations } from '@granary/shared/service/migrate-command';
import { testDatabase } from '@granary/testing/database';
import { paymentsConfig } from '../src/config';
import { paymentsSchema, startPayments } from '../src/service';

const log = createLogger('stored-prices-test', 'silent');
const token = 'eip155:84532/0x036CbD53842c5426634e7929541eC2318f3dCF7e';
let url: string;
let pool: Pool;
beforeEach(async () => {
  ({ url } = await testDatabase());
  pool = createPool({ url, size: 2, applicationName: 'stored-prices-test', log });
});
afterEach(() => pool.end());

const migrate = (settings: Record<string, string>) =>
  runMigrations('payments', paymentsSchema, { DATABASE_URL: url, ...settings }, log);

/** Starts a copy that does not migrate, and stops it. */
async function restart(settings: Record<string, string>): Promise<void> {
  const common = { DATABASE_URL: url, MIGRATIONS: 'wait', INTERNAL_SECRET: 'a secret that the services share' };
  const nowhere = () => ({ address: '127.0.0.1:1' });
  const config = readConfig(paymentsConfig, { ...common, ...settings });
  const service = await startPayments(config, { log, listen: false, ledger: nowhere, data: nowhere });
  await service.stop();
}

/** The valid price, the valid rate, and how many lists of prices were published. */
async function stored(): Promise<unknown[]> {
  const [price] = await rows<{ amount: bigint }>(
    pool,
    sql`select amount from price where name = 'retention_utia_per_gib_day' order by valid_from desc limit 1`,
  );
  const [rate] = await rows<{ units: string }>(
    pool,
    sql`select units_per_tia::text as units from rate order by revision desc limit 1`,
  );
  const published = await rows(pool, sql`select from outbox where topic = 'prices'`);
  return [price?.amount, rate?.units, published.length];
}

test('the command migrate stores prices and rates; a copy with MIGRATIONS=wait that has others changes nothing', async () => {
  const before = { RETENTION_UTIA_PER_GIB_DAY: '1000', X402_RATES: `${token}=4200000` };
  const after = { RETENTION_UTIA_PER_GIB_DAY: '1500', X402_RATES: `${token}=5000000` };
  await migrate(before);
  expect(await stored()).toEqual([1000n, '4200000', 1]);
  await migrate(after);
  expect(await stored()).toEqual([1500n, '5000000', 2]);
  // As one of the release before that is restarted during an upgrade.
  await restart(before);
  expect(await stored()).toEqual([1500n, '5000000', 2]);
});

test('a price that is no number ends the command migrate before it changes a price', async () => {
  await migrate({});
  await expect(migrate({ RETENTION_UTIA_PER_GIB_DAY: 'free' })).rejects.toThrow('RETENTION_UTIA_PER_GIB_DAY');
  expect(await stored()).toEqual([1000n, undefined, 1]);
});
