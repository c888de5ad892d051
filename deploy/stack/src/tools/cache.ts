import { randomBytes } from 'node:crypto';
import {
  access,
  constants,
  link,
  mkdir,
  mkdtemp,
  readFile,
  readdir,
  rename,
  rm,
  stat,
  utimes,
  writeFile,
} from 'node:fs/promises';
import os from 'node:os';
import path from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { StartError } from '@granary/shared/start-error';
import { exists } from '@granary/local/postgres/system-user';
import { identify, isAbandoned } from '@granary/local/processes/processes';

const lockPollMs = 200;
const lockTouchMs = 5000;
/** A lock of another container counts as abandoned after this long without an update. */
const foreignLockMs = 60_000;

/**
 * The folder of this user for downloads and builds: `$XDG_CACHE_HOME/granary`, else `~/.cache/granary`; for a user
 * without a home of its own, a folder in the temporary directory.
 */
export async function cacheFolder(): Promise<string> {
  const { XDG_CACHE_HOME: configured } = process.env;
  const home = os.homedir();
  const temporary = path.join(os.tmpdir(), `granary-${process.getuid?.() ?? os.userInfo().username}`);
  const candidates = [
    ...(configured && path.isAbsolute(configured) ? [path.join(configured, 'granary')] : []),
    ...((await isOurs(home)) ? [path.join(home, '.cache/granary')] : []),
    path.join(temporary, 'cache'),
  ];
  const problems: string[] = [];
  for (const candidate of candidates) {
    try {
      await mkdir(candidate, { recursive: true, mode: 0o755 });
      await access(candidate, constants.R_OK | constants.W_OK | constants.X_OK);
      // Programs are run from here, so other users must not be able to put them there; in the temporary directory they
      // could.
      const foreign = await firstForeign(candidate.startsWith(temporary) ? [temporary, candidate] : [candidate]);
      if (foreign === undefined) return candidate;
      problems.push(`${foreign} belongs to another user`);
    } catch (error) {
      problems.push((error as Error).message);
    }
  }
  throw new StartError(`No folder for downloads can be used: ${problems.join('; ')}. Set XDG_CACHE_HOME to one.`);
}

/**
 * Returns the folder `name` of the cache; `install` fills it if it does not exist. It is installed by a rename, so that
 * a crash leaves no partial folder; concurrent callers wait for one installation. `signal` ends the wait.
 */
export async function installOnce(
  name: string,
  install: (staging: string) => Promise<void>,
  signal?: AbortSignal,
): Promise<string> {
  const cache = await cacheFolder();
  const folder = path.join(cache, name);
  if (await exists(folder)) return folder;
  const prefix = `.${name}.`;
  return withLock(
    `${folder}.lock`,
    async () => {
      if (await exists(folder)) return folder;
      for (const left of await readdir(cache)) {
        const owner = left.startsWith(prefix) ? left.slice(prefix.length).split('.')[0] : undefined;
        const file = path.join(cache, left);
        if (owner !== undefined && (await isAbandoned(owner, file, foreignLockMs))) {
          await rm(file, { recursive: true, force: true });
        }
      }
      const staging = await mkdtemp(path.join(cache, `${prefix}${identify(process.pid)}.`));
      try {
        await install(staging);
        await rename(staging, folder).catch(async (error: unknown) => {
          // Another process that took over the same abandoned lock at the same moment has installed it.
          if (!(await exists(folder))) throw error;
        });
      } finally {
        await rm(staging, { recursive: true, force: true });
      }
      return folder;
    },
    signal,
  );
}

/**
 * Runs `work` while holding a lock file. The lock of a dead process is taken over. Two processes that do so at the same
 * moment may both acquire it, so `work` must be idempotent.
 */
export async function withLock<T>(file: string, work: () => Promise<T>, signal?: AbortSignal): Promise<T> {
  while (!(await takeLock(file))) {
    await delay(lockPollMs);
    signal?.throwIfAborted();
  }
  const touch = setInterval(() => {
    const now = new Date();
    utimes(file, now, now).catch(() => {});
  }, lockTouchMs);
  try {
    return await work();
  } finally {
    clearInterval(touch);
    await rm(file, { force: true });
  }
}

/** Links a complete file into place, so that a lock always contains the identity of its holder. */
async function takeLock(file: string): Promise<boolean> {
  const temporaryFile = `${file}.${randomBytes(6).toString('hex')}`;
  try {
    await writeFile(temporaryFile, identify(process.pid) ?? '');
    await link(temporaryFile, file);
    return true;
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'EEXIST') throw error;
  } finally {
    await rm(temporaryFile, { force: true });
  }
  const holder = await readFile(file, 'utf8').catch(() => undefined);
  if (holder !== undefined && (await isAbandoned(holder, file, foreignLockMs))) await rm(file, { force: true });
  return false;
}

async function firstForeign(folders: string[]): Promise<string | undefined> {
  for (const folder of folders) if (!(await isOurs(folder))) return folder;
  return undefined;
}

async function isOurs(directory: string): Promise<boolean> {
  if (!process.getuid) return true;
  try {
    return (await stat(directory)).uid === process.getuid();
  } catch {
    // It does not exist, or a parent folder is not accessible.
    return false;
  }
}
