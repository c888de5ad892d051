import { readConfig, type Environment } from '../config';
import { createLogger } from '../logger';
import { createPool, type Pool } from '../postgres/pool';
import { commonConfig } from './common-config';
import { databaseOf } from './database-settings';

const toolConfig = commonConfig.pick({ DATABASE_URL: true, DATABASE_PASSWORD_FILE: true });

/**
 * Opens the database of a service for a tool, by the settings that the service itself has, so that the tool runs in its
 * pod too. Throws a ConfigError when they are wrong. The caller ends the pool.
 */
export function openToolPool(name: string, environment: Environment, size: number): Pool {
  const settings = databaseOf(readConfig(toolConfig, environment));
  return createPool({ ...settings, size, applicationName: `granary-${name}`, log: createLogger(name, 'warn') });
}
