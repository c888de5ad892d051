import { wrongConfig } from '../config';
import type { PoolOptions } from '../postgres/pool';
import { readSetting } from '../trust/setting-file';

/** The URL of the database of a service, and the file with its password. */
export interface DatabaseSettings {
  DATABASE_URL: string;
  DATABASE_PASSWORD_FILE?: string | undefined;
}

/**
 * The URL of the database and the file with its password, for pools. Throws a ConfigError when the password is given
 * twice, or its file cannot be read.
 */
export function databaseOf({
  DATABASE_URL: url,
  DATABASE_PASSWORD_FILE: passwordFile,
}: DatabaseSettings): Pick<PoolOptions, 'url' | 'passwordFile'> {
  if (passwordFile === undefined) return { url };
  if (new URL(url).password !== '') {
    throw wrongConfig([['DATABASE_PASSWORD_FILE', 'the password is in DATABASE_URL already']]);
  }
  readSetting('DATABASE_PASSWORD_FILE', passwordFile);
  return { url, passwordFile };
}
