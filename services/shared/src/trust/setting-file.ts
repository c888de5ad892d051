import { readFileSync } from 'node:fs';
import { wrongConfig } from '../config';

/** The content of a file that a setting names, read once at the start. Throws a ConfigError that names the setting. */
export function readSetting(name: string, path: string): Buffer {
  try {
    return readFileSync(path);
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException;
    throw wrongConfig([[name, `the file cannot be read (${code})`]]);
  }
}

/**
 * A secret, given as the value of a setting or in the file that `<name>_FILE` names, without the white space around it.
 * Undefined when neither is given. Throws a ConfigError when both are, and when the file cannot be read or is empty.
 */
export function readSecret<N extends string>(
  settings: { readonly [K in N | `${N}_FILE`]?: string | undefined },
  name: N,
): string | undefined {
  const [value, path] = [settings[name], settings[`${name}_FILE`]];
  if (value !== undefined && path !== undefined) {
    throw wrongConfig([[name, `either it or ${name}_FILE is expected`]]);
  }
  if (path === undefined) return value;
  const secret = readSetting(`${name}_FILE`, path).toString().trim();
  if (secret === '') throw wrongConfig([[`${name}_FILE`, 'the file is empty']]);
  return secret;
}
