import { commonConfig } from './common-config';
import { databaseOf } from './database-settings';
import { migrateSchema, type Schema } from './schema';
import { readConfig, type Environment } from '../config';
import type { Logger } from '../logger';
import { assertSafePostgres, createPool } from '../postgres/pool';

/** The settings of the command; its role may be another one than that of the service, and needs no other secrets. */
const migrateConfig = commonConfig.pick({ DATABASE_URL: true, DATABASE_PASSWORD_FILE: true, LOG_LEVEL: true });

/** The command `migrate` of a service: brings the schema of its database up to date and ends. Throws when it cannot. */
export async function runMigrations(
  name: string,
  schema: Schema,
  environment: Environment,
  log: Logger,
): Promise<void> {
  const database = databaseOf(readConfig(migrateConfig, environment));
  const pool = createPool({ ...database, size: 2, applicationName: `granary-${name}-migrate`, log });
  try {
    await assertSafePostgres(pool);
    await migrateSchema(pool, schema);
    log.info('the schema is up to date');
  } finally {
    await pool.end();
  }
}
