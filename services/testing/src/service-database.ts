import { createHash } from 'node:crypto';
import { createLogger } from '@granary/shared/logger';
import { readMigrations, readRepeatables } from '@granary/shared/postgres/migrate';
import { createPool } from '@granary/shared/postgres/pool';
import { migrateSchema, type Schema } from '@granary/shared/service/schema';
import { cloneDatabase, templateDatabase, type TestDatabase } from './database';

/**
 * A fresh database with the tables of a service, `dataSchema` for example: a copy of one that is migrated once per run.
 */
export async function serviceDatabase(schema: Schema): Promise<TestDatabase> {
  const { bus = false, idempotency = false } = schema;
  const migrations = await readMigrations(schema.migrations);
  const repeatables = await readRepeatables(schema.migrations);
  const tables = JSON.stringify({ bus, idempotency, migrations, repeatables });
  const name = `template_${createHash('sha256').update(tables).digest('hex').slice(0, 32)}`;
  return cloneDatabase(await templateDatabase(name, (url) => migrateOnce(url, schema)));
}

async function migrateOnce(url: string, schema: Schema): Promise<void> {
  const pool = createPool({ url, size: 1, applicationName: 'template', log: createLogger('test', 'silent') });
  try {
    await migrateSchema(pool, schema);
  } finally {
    await pool.end();
  }
}
