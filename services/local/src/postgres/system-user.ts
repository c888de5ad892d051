import { execFile } from 'node:child_process';
import { lstat, mkdir, chmod } from 'node:fs/promises';
import path from 'node:path';
import { promisify } from 'node:util';

const run = promisify(execFile);

/** The operating-system user that runs Postgres, if it is not our own. */
export interface SystemUser {
  name: string;
  uid: number;
  gid: number;
}

/**
 * Postgres refuses to run as root. As root we choose the owner of an existing cluster, else `postgres`, or `nobody` if
 * that user does not exist. No user is created. For any other user the result is undefined: Postgres runs as that user.
 */
export async function findPostgresUser(dataDir: string): Promise<SystemUser | undefined> {
  if (process.getuid?.() !== 0) return undefined;
  const cluster = path.join(dataDir, 'postgres');
  if (await exists(cluster)) {
    const { uid, gid } = await lstat(cluster);
    if (uid !== 0) return { name: await nameOf(uid), uid, gid };
  }
  for (const name of ['postgres', 'nobody']) {
    try {
      const [uid, gid] = await Promise.all([run('id', ['-u', name]), run('id', ['-g', name])]);
      if (Number(uid.stdout) !== 0) return { name, uid: Number(uid.stdout), gid: Number(gid.stdout) };
    } catch {
      // No such user: try the next name.
    }
  }
  return { name: 'nobody', uid: 65534, gid: 65534 };
}

async function nameOf(uid: number): Promise<string> {
  try {
    return (await run('id', ['-nu', String(uid)])).stdout.trim();
  } catch {
    return String(uid);
  }
}

/** Options to run child processes as that user. Its working directory must be one that it can enter, hence the cwd. */
export function asUser(user: SystemUser | undefined): { uid?: number; gid?: number; cwd: string } {
  return user ? { uid: user.uid, gid: user.gid, cwd: '/' } : { cwd: '/' };
}

/** Tests by entering the directory: modes alone do not cover ACLs, mounts and dropped capabilities. */
export async function canEnter(directory: string, user: SystemUser | undefined): Promise<boolean> {
  try {
    await run('/bin/sh', ['-c', 'cd -- "$1"', 'sh', directory], asUser(user));
    return true;
  } catch {
    return false;
  }
}

/**
 * The first directory on the path to `directory` that the user cannot enter; directories that do not exist are skipped.
 */
export async function firstClosedFolder(directory: string, user: SystemUser): Promise<string | undefined> {
  for (const folder of ancestry(directory)) {
    if ((await exists(folder)) && !(await canEnter(folder, user))) return folder;
  }
  return undefined;
}

/**
 * Like `mkdir -p`, but parent directories can be entered by all, regardless of the umask: root often has 077, and the
 * server's user must be able to pass.
 */
export async function makeFolders(directory: string, mode: number): Promise<void> {
  for (const folder of ancestry(directory)) {
    if (await exists(folder)) continue;
    try {
      await mkdir(folder);
      await chmod(folder, folder === directory ? mode : 0o755);
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code !== 'EEXIST') throw error;
    }
  }
}

export async function exists(file: string): Promise<boolean> {
  try {
    await lstat(file);
    return true;
  } catch (error) {
    const code = (error as NodeJS.ErrnoException).code;
    if (code === 'ENOENT' || code === 'ENOTDIR') return false;
    throw error;
  }
}

function ancestry(directory: string): string[] {
  const folders = [directory];
  for (let folder = directory; path.dirname(folder) !== folder; folder = path.dirname(folder)) {
    folders.unshift(path.dirname(folder));
  }
  return folders;
}
