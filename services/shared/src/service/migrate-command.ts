import { z } from 'zod';
import { commonConfig } from './common-config';
import { databaseOf } from './database-settings';
import { migrateSchema, type Schema } from './schema';
import { readConfig, type Environment } from '../config';
import type { Logger } from '../logger';
import { assertSafePostgres, createPool } from '../postgres/pool';
import { grantRights } from '../postgres/rights';

/** The settings of the command; its role may be another one than that of the service, and needs no other secrets. */
const migrateConfig = commonConfig.pick({ DATABASE_URL: true, DATABASE_PASSWORD_FILE: true, LOG_LEVEL: true }).extend({
  /** The role of the service, where it is not the one that migrates: it is given the rights that a service has. */
  SERVICE_ROLE: z.string().min(1).max(63).optional(),
});

/** The command `migrate` of a service: brings the schema of its database up to date and ends. Throws when it cannot. */
export async function runMigrations(
  name: string,
  schema: Schema,
  environment: Environment,
  log: Logger,
): Promise<void> {
  const config = readConfig(migrateConfig, environment);
  const pool = createPool({ ...databaseOf(config), size: 2, applicationName: `granary-${name}-migrate`, log });
  try {
    await assertSafePostgres(pool);
    await migrateSchema(pool, schema);
    if (config.SERVICE_ROLE !== undefined) await grantRights(pool, config.SERVICE_ROLE);
    log.info('the schema is up to date');
  } finally {
    await pool.end();
  }
}
