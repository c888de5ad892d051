import { readFileSync } from 'node:fs';
import { codeOf } from './errors.mjs';

/** The text of a file, or undefined if there is no such file. @param {string} file */
export function readIfThere(file) {
  try {
    return readFileSync(file, 'utf8');
  } catch (error) {
    if (codeOf(error) === 'ENOENT') return undefined;
    throw error;
  }
}
