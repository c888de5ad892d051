import { randomBytes } from 'node:crypto';
import { access, constants, mkdir, readdir, rename, rm, stat, statfs } from 'node:fs/promises';
import path from 'node:path';
import { ConfigError } from '@granary/shared/config';
import { exists } from '@granary/local/postgres/system-user';
import { identify, isAbandoned } from '@granary/local/processes/processes';
import { syncDirectory, writeHashed, type FileSum } from './hashed-file';
import { manifestFile } from './manifest';

/**
 * A directory of backups. Each is a folder `backup-<time>`, named so when it is complete. `blobs/` contains the bytes
 * of the blobs of all backups, each content once, in files named after their SHA-256.
 */
const backupPrefix = 'backup-';
const incompletePrefix = '.incomplete-';
const incomingPrefix = '.incoming-';
const blobsFolder = 'blobs';
/** An unfinished backup of another machine counts as abandoned after this long without an update. */
const foreignMs = 7 * 86_400_000;

export interface Repository {
  directory: string;
  /** Path of the file for this content, whether it exists or not. */
  blobFile(sha256: string): string;
  hasBlob(sum: FileSum): Promise<boolean>;
  /** Adds a content if its size and hash are correct, else throws `mismatch`. */
  addBlob(sum: FileSum, source: AsyncIterable<Buffer>, mismatch: string, signal: AbortSignal): Promise<void>;
}

export const openRepository = (directory: string): Repository => {
  const blobFile = (sha256: string) =>
    path.join(directory, blobsFolder, sha256.slice(0, 2), sha256.slice(2, 4), sha256);
  return {
    directory,
    blobFile,
    hasBlob: async ({ sha256, sizeBytes }) => (await stat(blobFile(sha256)).catch(() => undefined))?.size === sizeBytes,
    addBlob: async (sum, source, mismatch, signal) => {
      const incoming = path.join(directory, blobsFolder, `${incomingPrefix}${uniqueSuffix()}`);
      const written = await writeHashed(incoming, source, undefined, signal);
      if (written.sha256 !== sum.sha256 || written.sizeBytes !== sum.sizeBytes) {
        await rm(incoming, { force: true });
        throw new ConfigError(mismatch);
      }
      const file = blobFile(sum.sha256);
      await makeDirectories(path.dirname(file), path.join(directory, blobsFolder));
      await rename(incoming, file);
      await syncDirectory(path.dirname(file));
    },
  };
};

/** Prepares a directory for a backup, and removes the remains of killed backups. */
export async function prepareRepository(directory: string): Promise<Repository> {
  try {
    await mkdir(path.join(directory, blobsFolder), { recursive: true, mode: 0o700 });
    await access(directory, constants.W_OK);
    for (const folder of [directory, path.join(directory, blobsFolder)]) await removeAbandoned(folder);
  } catch (error) {
    throw new ConfigError(`${directory} cannot store a backup: ${(error as Error).message}`, { cause: error });
  }
  return openRepository(directory);
}

/** Creates the folder of a backup in progress; its name distinguishes it from a complete one. */
export async function beginBackup(directory: string): Promise<string> {
  const folder = path.join(directory, `${incompletePrefix}${uniqueSuffix()}`);
  await mkdir(folder, { mode: 0o700 });
  return folder;
}

/** Renames a complete backup to its final name, and returns that. */
export async function completeBackup(directory: string, folder: string, time: Date): Promise<string> {
  await syncDirectory(folder);
  const base = `${backupPrefix}${time.toISOString().slice(0, 19).replaceAll(':', '-')}Z`;
  for (let attempt = 1; ; attempt++) {
    const name = attempt === 1 ? base : `${base}-${attempt}`;
    if (await exists(path.join(directory, name))) continue;
    await rename(folder, path.join(directory, name));
    await syncDirectory(directory);
    return name;
  }
}

/**
 * The newest backup of a directory, or the directory itself if it is a backup. Throws a ConfigError if there is none.
 */
export async function findBackup(directory: string): Promise<{ folder: string; repository: Repository }> {
  if (await exists(path.join(directory, manifestFile))) {
    return { folder: directory, repository: openRepository(path.dirname(directory)) };
  }
  const names = await readdir(directory).catch(() => []);
  const newest = names
    .filter((name) => name.startsWith(backupPrefix))
    .sort()
    .at(-1);
  if (newest === undefined) throw new ConfigError(`There is no backup in ${directory}.`);
  return { folder: path.join(directory, newest), repository: openRepository(directory) };
}

export async function freeBytes(directory: string): Promise<number> {
  const { bavail, bsize } = await statfs(directory);
  return bavail * bsize;
}

const outOfSpace = new Set(['ENOSPC', 'EDQUOT', 'EFBIG']);

/** Describes the error in a sentence if it reports a full disk. */
export function explainFull(error: unknown, directory: string): unknown {
  const { code } = error as NodeJS.ErrnoException;
  if (code === undefined || !outOfSpace.has(code)) return error;
  return new ConfigError(`${directory} is full (${code}).`, { cause: error });
}

async function makeDirectories(directory: string, above: string): Promise<void> {
  const made = await mkdir(directory, { recursive: true, mode: 0o700 });
  if (made === undefined) return;
  for (let folder = path.dirname(directory); folder.startsWith(above); folder = path.dirname(folder)) {
    await syncDirectory(folder);
  }
}

async function removeAbandoned(folder: string): Promise<void> {
  for (const name of await readdir(folder)) {
    const prefix = [incompletePrefix, incomingPrefix].find((each) => name.startsWith(each));
    if (prefix === undefined) continue;
    const file = path.join(folder, name);
    const owner = name.slice(prefix.length).split('.')[0] ?? '';
    if (await isAbandoned(owner, file, foreignMs)) await rm(file, { recursive: true, force: true });
  }
}

/** Identifies this process, so that its remains can be distinguished from backups in progress. */
const uniqueSuffix = (): string => `${identify(process.pid) ?? '0-gone'}.${randomBytes(6).toString('hex')}`;
