import type { Environment } from '../config';
import { prepareOutbox } from '../bus/epoch';
import { busMigrations } from '../bus/migrations';
import { idempotencyMigrations } from '../idempotency/migrations';
import {
  applyMigrations,
  applyRepeatables,
  missingMigrations,
  missingRepeatables,
  readMigrations,
  readRepeatables,
  type Migration,
} from '../postgres/migrate';
import { isUnreachable } from '../postgres/errors';
import type { Pool } from '../postgres/pool';
import { unreadableTables } from '../postgres/rights';
import { NotAvailableError } from '../start-error';

/**
 * Rethrows an error that was met while the schema was read or changed. Where Postgres has gone it throws a
 * NotAvailableError instead: all of that work is repeatable.
 */
export function explainUnreachable(cause: unknown): never {
  if (!isUnreachable(cause)) throw cause;
  throw new NotAvailableError('The database has gone while its schema was brought up to date.', { cause });
}

/** Which tables the database of a service has. */
export interface Schema {
  /** The directory of the service's own migrations. */
  migrations: string;
  /** The tables of events, see bus/migrations.ts. */
  bus?: boolean;
  /** The tables of kept answers, see idempotency/migrations.ts. */
  idempotency?: boolean;
  /**
   * Stores those settings of the service that count for all of its copies. Called by the command `migrate`, where
   * copies do not migrate: one of an earlier release that is restarted during an upgrade must not store its own again.
   * Repeatable.
   */
  storeSettings?: (pool: Pool, environment: Environment) => Promise<void>;
}

/** The migrations of a schema by their source, in the order in which they run. */
async function sourcesOf({ migrations, bus, idempotency }: Schema): Promise<Array<[string, readonly Migration[]]>> {
  const serviceMigrations = await readMigrations(migrations);
  return [
    ...(bus ? [['bus', busMigrations] as [string, readonly Migration[]]] : []),
    ['service', serviceMigrations],
    ...(idempotency ? [['idempotency', idempotencyMigrations] as [string, readonly Migration[]]] : []),
  ];
}

/** Brings a database up to its schema. Repeatable, and safe beside other copies that do the same. */
export async function migrateSchema(pool: Pool, schema: Schema): Promise<void> {
  for (const [source, migrations] of await sourcesOf(schema)) {
    await applyMigrations(pool, source, migrations);
    // Later migrations may append events.
    if (source === 'bus') await prepareOutbox(pool);
  }
  await applyRepeatables(pool, await readRepeatables(schema.migrations));
}

/**
 * Throws a NotAvailableError while migrations of the schema are missing, or the rights of this role on them. A newer
 * schema is accepted.
 */
export async function assertSchema(pool: Pool, schema: Schema): Promise<void> {
  const unreadable = await unreadableTables(pool);
  if (unreadable.length > 0) {
    throw new NotAvailableError(
      `The role in DATABASE_URL may not read ${unreadable[0]!}: run the command migrate with SERVICE_ROLE.`,
    );
  }
  for (const [source, migrations] of await sourcesOf(schema)) {
    assertNoneMissing(await missingMigrations(pool, source, migrations));
  }
  assertNoneMissing(await missingRepeatables(pool, await readRepeatables(schema.migrations)));
  if (schema.bus) await prepareOutbox(pool);
}

function assertNoneMissing(missing: readonly string[]): void {
  if (missing.length === 0) return;
  throw new NotAvailableError(
    `The schema of the database lacks ${missing.length} migrations, from ${missing[0]!} on: run the command migrate.`,
  );
}
