import { z } from 'zod';
import { commonConfig } from './common-config';
import { databaseOf } from './database-settings';
import { explainUnreachable, migrateSchema, type Schema } from './schema';
import { readConfig, type Environment } from '../config';
import type { CancelSignal } from '../concurrency/cancellation';
import type { Logger } from '../logger';
import { assertSafePostgres, createPool } from '../postgres/pool';
import { grantRights } from '../postgres/rights';
import { waitForDependency } from './wait-for-dependency';

/** The settings of the command; its role may be another one than that of the service, and needs no other secrets. */
const migrateConfig = commonConfig.pick({ DATABASE_URL: true, DATABASE_PASSWORD_FILE: true, LOG_LEVEL: true }).extend({
  /** The role of the service, where it is not the one that migrates: it is given the rights that a service has. */
  SERVICE_ROLE: z.string().min(1).max(63).optional(),
});

/**
 * The command `migrate` of a service: brings the schema of its database up to date, stores the settings of all copies,
 * and ends. With `interrupted` it waits for a database that cannot be reached, until that aborts. Throws when it
 * cannot.
 */
export async function runMigrations(
  name: string,
  schema: Schema,
  environment: Environment,
  log: Logger,
  interrupted?: CancelSignal,
): Promise<void> {
  const config = readConfig(migrateConfig, environment);
  const pool = createPool({ ...databaseOf(config), size: 2, applicationName: `granary-${name}-migrate`, log });
  try {
    await waitForDependency(log, interrupted, async () => {
      await assertSafePostgres(pool);
      await migrateSchema(pool, schema).catch(explainUnreachable);
      if (config.SERVICE_ROLE !== undefined) await grantRights(pool, config.SERVICE_ROLE).catch(explainUnreachable);
      await schema.storeSettings?.(pool, environment).catch(explainUnreachable);
    });
    log.info('the schema is up to date');
  } finally {
    await pool.end();
  }
}
