import { randomBytes } from 'node:crypto';
import { constants, copyFile, link, rename, rm, writeFile } from 'node:fs/promises';

/** Writes a file at once: a reader sees the one of before or the new one. `mode` is that of a file for others, too. */
export async function replaceFile(file: string, text: string, mode = 0o666): Promise<void> {
  await publish(file, text, mode, rename);
}

/** Makes a file at once, with all its text. Resolves to false where a file has the name, which stays as it is. */
export async function createFile(file: string, text: string, mode: number): Promise<boolean> {
  try {
    await publish(file, text, mode, linkNew);
    return true;
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'EEXIST') return false;
    throw error;
  }
}

async function linkNew(staging: string, file: string): Promise<void> {
  try {
    await link(staging, file);
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'EEXIST') throw error;
    // This file system may have no links. A reader may see a copy that is not whole yet.
    await copyFile(staging, file, constants.COPYFILE_EXCL);
  }
}

async function publish(
  file: string,
  text: string,
  mode: number,
  put: (staging: string, file: string) => Promise<void>,
): Promise<void> {
  const staging = `${file}.${randomBytes(6).toString('hex')}`;
  try {
    await writeFile(staging, text, { mode, flag: 'wx', flush: true });
    await put(staging, file);
  } finally {
    await rm(staging, { force: true });
  }
}
