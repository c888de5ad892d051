import { randomBytes } from 'node:crypto';
import { rename, rm, writeFile } from 'node:fs/promises';

/** Writes a file at once: a reader sees the one of before or the new one. `mode` is that of a file for others, too. */
export async function replaceFile(file: string, text: string, mode = 0o666): Promise<void> {
  const staging = `${file}.${randomBytes(6).toString('hex')}`;
  try {
    await writeFile(staging, text, { mode, flag: 'wx' });
    await rename(staging, file);
  } finally {
    await rm(staging, { force: true });
  }
}
