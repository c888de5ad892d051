import { randomBytes } from 'node:crypto';
import { access, constants, mkdir, readdir, rename, rm, stat, statfs } from 'node:fs/promises';
import path from 'node:path';
import { ConfigError } from '@granary/shared/config';
import { exists } from '../postgres/system-user';
import { identify, isAbandoned } from '../stack/processes';
import { syncDirectory, writeHashed, type FileSum } from './hashed-file';
import { manifestFile } from './manifest';

/**
 * A directory that holds backups. Each is a folder `backup-<time>`, which gets that name when it is complete. `blobs/`
 * has the bytes of the blobs of all of them, each content once, in files named for their SHA-256.
 */
const backupPrefix = 'backup-';
const incompletePrefix = '.incomplete-';
const incomingPrefix = '.incoming-';
const blobsFolder = 'blobs';
/** From this age on an unfinished backup of another machine counts as given up. */
const foreignMs = 7 * 86_400_000;

export interface Repository {
  directory: string;
  /** Path of the file with these bytes, whether it exists or not. */
  blobFile(sha256: string): string;
  hasBlob(sum: FileSum): Promise<boolean>;
  /** Adds a content if it has the size and hash that it should have, else throws `mismatch`. */
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

/** Makes a directory ready to take a backup, and removes what backups that were killed have left in it. */
export async function prepareRepository(directory: string): Promise<Repository> {
  try {
    await mkdir(path.join(directory, blobsFolder), { recursive: true, mode: 0o700 });
    await access(directory, constants.W_OK);
    for (const folder of [directory, path.join(directory, blobsFolder)]) await removeAbandoned(folder);
  } catch (error) {
    throw new ConfigError(`${directory} cannot take a backup: ${(error as Error).message}`, { cause: error });
  }
  return openRepository(directory);
}

/** A folder of a backup that is being made; nobody takes it for a complete one. */
export async function beginBackup(directory: string): Promise<string> {
  const folder = path.join(directory, `${incompletePrefix}${uniqueSuffix()}`);
  await mkdir(folder, { mode: 0o700 });
  return folder;
}

/** Gives a complete backup its name, and returns that. */
export async function completeBackup(directory: string, folder: string, at: Date): Promise<string> {
  await syncDirectory(folder);
  const base = `${backupPrefix}${at.toISOString().slice(0, 19).replaceAll(':', '-')}Z`;
  for (let attempt = 1; ; attempt++) {
    const name = attempt === 1 ? base : `${base}-${attempt}`;
    if (await exists(path.join(directory, name))) continue;
    await rename(folder, path.join(directory, name));
    await syncDirectory(directory);
    return name;
  }
}

/** The newest backup of a directory, or the directory itself where it is a backup. Throws a ConfigError without one. */
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

/** The error as a sentence where it says that there is no room. */
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

/** Names this process, so that what it leaves when it is killed can be told from what others are writing. */
const uniqueSuffix = (): string => `${identify(process.pid) ?? '0-gone'}.${randomBytes(6).toString('hex')}`;
