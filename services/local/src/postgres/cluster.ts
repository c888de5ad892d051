import { execFile } from 'node:child_process';
import { createHmac, randomBytes } from 'node:crypto';
import {
  chmod,
  chown,
  lchown,
  link,
  lstat,
  mkdir,
  open,
  readFile,
  readdir,
  rename,
  rm,
  writeFile,
} from 'node:fs/promises';
import path from 'node:path';
import { promisify } from 'node:util';
import { StartError } from '@granary/shared/start-error';
import { findBinaries, type Binaries } from './binaries';
import { openDataDir, passwordFile } from './data-dir';
import { asUser, exists, findPostgresUser, type SystemUser } from './system-user';

const run = promisify(execFile);

/** Receives log lines. */
export interface PostgresLog {
  info: (message: string) => void;
  warn: (message: string) => void;
}

const majorVersion = '18';
const stagingPrefix = 'postgres-initdb-';

/** A database cluster on disk, with the user, binaries and passwords needed to run it. */
export interface Cluster {
  /** Absolute real path of the data directory. */
  dataDir: string;
  /** Absolute real path of the cluster. */
  directory: string;
  logFile: string;
  binaries: Binaries;
  user: SystemUser | undefined;
  passwordOf: (role: string) => string;
}

/**
 * Opens the cluster of a data directory, or creates one. A new cluster is created in a temporary directory and renamed,
 * so that neither a crash nor two concurrent starts leave a partial cluster.
 */
export async function openCluster(dataDir: string, log: PostgresLog): Promise<Cluster> {
  const user = await findPostgresUser(path.resolve(dataDir));
  const home = await openDataDir(dataDir, user);
  const directory = path.join(home, 'postgres');
  const binaries = await findBinaries(user);
  const secret = await readSecret(home);
  if (!(await exists(directory))) await initialize(home, directory, binaries, user, secret);
  else if (user && (await lstat(directory)).uid === 0) await giveTo(directory, user, log);
  const version = (await readFile(path.join(directory, 'PG_VERSION'), 'utf8')).trim();
  if (version !== majorVersion) {
    throw new StartError(
      `${directory} was created by Postgres ${version}, and this is Postgres ${majorVersion}. Dump it with the release that created it, and restore the dump here.`,
    );
  }
  return {
    dataDir: home,
    directory,
    logFile: path.join(home, 'postgres.log'),
    binaries,
    user,
    // The superuser's password is the secret itself. The password of each service's role is derived from it and does
    // not reveal the others.
    passwordOf: (role) =>
      role === 'postgres' ? secret : createHmac('sha256', secret).update(role).digest('base64url'),
  };
}

/**
 * Removes the temporary directories of crashed starts. Requires the lock: no other process can install a cluster now. A
 * concurrent start may still write into its directory; it removes it when it finds the cluster installed.
 */
export async function sweepStaging(dataDir: string): Promise<void> {
  for (const name of await readdir(dataDir)) {
    if (!name.startsWith(stagingPrefix)) continue;
    await rm(path.join(dataDir, name), { recursive: true, force: true }).catch((error: unknown) => {
      if ((error as NodeJS.ErrnoException).code !== 'ENOTEMPTY') throw error;
    });
  }
}

/** A copy made by root without preserving owners (cp -r) belongs to root, and Postgres refuses to run as root. */
async function giveTo(directory: string, user: SystemUser, log: PostgresLog): Promise<void> {
  log.warn(`${directory} belongs to root, as after cp -r: giving it to the user "${user.name}", who runs Postgres`);
  const entries = await readdir(directory, { recursive: true });
  for (const entry of entries) await lchown(path.join(directory, entry), user.uid, user.gid);
  // Postgres accepts no other mode. The directory itself comes last, so that an interrupted start repeats all of it.
  await chmod(directory, 0o700);
  await lchown(directory, user.uid, user.gid);
}

/** Links a complete file into place, so that the password is written atomically and once by concurrent starts. */
async function readSecret(dataDir: string): Promise<string> {
  const file = path.join(dataDir, passwordFile);
  if (!(await exists(file))) {
    const staging = `${file}.${randomBytes(6).toString('hex')}`;
    const handle = await open(staging, 'wx', 0o600);
    try {
      await handle.writeFile(randomBytes(24).toString('base64url'));
      await handle.sync();
      await link(staging, file);
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code !== 'EEXIST') throw error;
    } finally {
      await handle.close();
      await rm(staging, { force: true });
    }
    await syncFolder(dataDir);
  }
  try {
    return (await readFile(file, 'utf8')).trim();
  } catch (error) {
    throw new StartError(
      `The data directory ${dataDir} belongs to another user: ${file} cannot be read. Start as that user, or choose another directory.`,
      {
        cause: error,
      },
    );
  }
}

async function initialize(
  dataDir: string,
  directory: string,
  binaries: Binaries,
  user: SystemUser | undefined,
  secret: string,
): Promise<void> {
  const staging = path.join(dataDir, `${stagingPrefix}${randomBytes(6).toString('hex')}`);
  const password = path.join(staging, 'password');
  const cluster = path.join(staging, 'cluster');
  try {
    await mkdir(staging, { mode: 0o700 });
    await writeFile(password, secret, { mode: 0o600 });
    if (user) {
      await chown(password, user.uid, user.gid);
      await chown(staging, user.uid, user.gid);
    }
    const options = [
      `--pgdata=${cluster}`,
      `--pwfile=${password}`,
      '--username=postgres',
      '--auth=scram-sha-256',
      '--encoding=UTF8',
      '--locale=C',
      '--locale-provider=builtin',
      '--builtin-locale=C.UTF-8',
      '--data-checksums',
    ];
    await run(binaries.initdb, options, { ...asUser(user), env: { PATH: process.env.PATH, LC_ALL: 'C', TZ: 'UTC' } });
    await rename(cluster, directory);
    await syncFolder(dataDir);
  } catch (error) {
    // A concurrent start has installed its complete cluster.
    if (await exists(path.join(directory, 'PG_VERSION'))) return;
    const detail = (error as { stderr?: string }).stderr?.trim() ?? (error as Error).message;
    throw new StartError(`A Postgres cluster could not be created in ${dataDir}: ${detail}`, { cause: error });
  } finally {
    // The owner of the cluster may be removing the same directory.
    await rm(staging, { recursive: true, force: true, maxRetries: 5 });
  }
}

async function syncFolder(directory: string): Promise<void> {
  const handle = await open(directory, 'r');
  try {
    await handle.sync();
  } finally {
    await handle.close();
  }
}
