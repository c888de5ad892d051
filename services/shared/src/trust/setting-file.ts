import { readFileSync } from 'node:fs';
import { ConfigError } from '../config';

/** The content of a file that a setting names, read once at the start. Throws a ConfigError that names the setting. */
export function readSetting(name: string, path: string): Buffer {
  try {
    return readFileSync(path);
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException;
    throw new ConfigError(`The configuration is wrong:\n  ${name}: the file cannot be read (${code})`);
  }
}
