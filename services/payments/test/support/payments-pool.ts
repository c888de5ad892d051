import { join } from 'node:path';
import { createLogger } from '@granary/shared/logger';
import { createPool, type Pool } from '@granary/shared/postgres/pool';
import { serviceDatabase } from '@granary/testing/service-database';

const migrations = join(__dirname, '..', '..', 'migrations');

/**
 * A pool of so many connections on a fresh database with the tables of payments; for suites that load only parts of the
 * service.
 */
export async function openPaymentsPool(size: number): Promise<Pool> {
  const { url } = await serviceDatabase({ migrations, bus: true });
  return createPool({ url, size, applicationName: 'test', log: createLogger('test', 'silent') });
}
