import { lstat, rm, stat, statfs, writeFile } from 'node:fs/promises';
import os from 'node:os';
import path from 'node:path';
import { StartError } from '@granary/shared/start-error';
import { resolveDataDir } from './data-dir';
import { exists, makeFolders } from './system-user';

/** A new cluster takes 60 MiB, and its first write-ahead log the same again. */
const defaultNewClusterBytes = 256 * 1024 ** 2;

const elsewhere = 'Choose another with --data-dir (DATA_DIR).';

/**
 * Chooses the data directory, see `resolveDataDir`, creates it if it is missing and returns its absolute path. Throws a
 * StartError if nothing can be stored there; Postgres would report these reasons later and less clearly.
 */
export async function openDataDirectory(options: {
  explicit: string | undefined;
  defaultDir: string;
  say: (line: string) => void;
  /** The free space required for a directory without a cluster. */
  newClusterBytes?: number;
}): Promise<string> {
  let dataDir = path.resolve(options.explicit ?? options.defaultDir);
  try {
    await refuseFile(dataDir);
    const resolved = await resolveDataDir(options);
    dataDir = resolved.dataDir;
    if (resolved.note) options.say(resolved.note);
    await makeFolders(dataDir, 0o700);
    const probe = path.join(dataDir, `.probe-${process.pid}`);
    await writeFile(probe, '');
    await rm(probe);
    await refuseSmall(dataDir, options.newClusterBytes ?? defaultNewClusterBytes);
    return dataDir;
  } catch (error) {
    throw unusable(dataDir, error);
  }
}

/** Names the file that blocks the path of the directory. */
async function refuseFile(dataDir: string): Promise<void> {
  for (let folder = dataDir; folder !== path.dirname(folder); folder = path.dirname(folder)) {
    if (!(await exists(folder))) continue;
    const stats = await stat(folder).catch(() => lstat(folder));
    if (stats.isDirectory()) return;
    const what = folder === dataDir ? 'it is not a directory' : `${folder} is not a directory`;
    throw new StartError(`The data directory ${dataDir} cannot be used: ${what}. ${elsewhere}`);
  }
}

async function refuseSmall(dataDir: string, newClusterBytes: number): Promise<void> {
  if (await exists(path.join(dataDir, 'postgres'))) return;
  const { bavail, bsize } = await statfs(dataDir);
  const free = bavail * bsize;
  if (free >= newClusterBytes) return;
  throw new StartError(
    `The data directory ${dataDir} is on a disk that is full or too small: a new database needs ` +
      `${inMebibytes(newClusterBytes)} MiB, and ${inMebibytes(free)} MiB are free. Free some space, or choose another ` +
      'directory with --data-dir (DATA_DIR).',
  );
}

const inMebibytes = (bytes: number): number => Math.floor(bytes / 1024 ** 2);

function unusable(dataDir: string, error: unknown): unknown {
  if (error instanceof StartError) return error;
  const { code = '', path: place = dataDir } = error as NodeJS.ErrnoException;
  const parent = place === dataDir || place.startsWith(`${dataDir}/`) ? place : dataDir;
  const why = reasons(path.dirname(parent))[code];
  return why
    ? new StartError(`The data directory ${dataDir} cannot be used: ${why} ${elsewhere}`, { cause: error })
    : error;
}

const reasons = (parent: string): Partial<Record<string, string>> => ({
  EACCES: `the user "${os.userInfo().username}" may not write in ${parent}.`,
  EPERM: `the user "${os.userInfo().username}" may not write in ${parent}.`,
  EROFS: 'the file system is read-only.',
  ENOSPC: 'the disk is full.',
  EDQUOT: 'the quota of the disk is used up.',
  ENOTDIR: 'a part of the path is a file.',
  ENAMETOOLONG: 'the path is too long.',
  ELOOP: 'its symbolic links lead in a circle.',
});
