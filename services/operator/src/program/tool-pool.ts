import { readConfig, type Environment } from '@granary/shared/config';
import { createLogger } from '@granary/shared/logger';
import { createPool, type Pool } from '@granary/shared/postgres/pool';
import { commonConfig } from '@granary/shared/service/common-config';
import { databaseOf } from '@granary/shared/service/database-settings';

const toolConfig = commonConfig.pick({ DATABASE_URL: true, DATABASE_PASSWORD_FILE: true });

export interface ToolPoolOptions {
  /** The name of the command, by which Postgres shows its connections. */
  name: string;
  /** How many connections it may open. */
  size: number;
  /** The text that explains the command to a person who has not set DATABASE_URL. */
  usage: string;
}

/**
 * Opens the database of a service for `work`, by the settings that the service itself has, so that a command runs in
 * its pod too, and closes it afterwards. Throws an Error when the settings are missing or wrong.
 */
export async function withToolPool<T>(
  environment: Environment,
  { name, size, usage }: ToolPoolOptions,
  work: (pool: Pool) => Promise<T>,
): Promise<T> {
  if (!environment['DATABASE_URL']) throw new Error(`DATABASE_URL is not set.\n\n${usage}`);
  const settings = databaseOf(readConfig(toolConfig, environment));
  const log = createLogger(name, 'warn');
  const pool = createPool({ ...settings, size, applicationName: `granary-${name}`, log });
  try {
    return await work(pool);
  } finally {
    await pool.end();
  }
}
