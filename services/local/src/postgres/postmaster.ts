import { spawn } from 'node:child_process';
import { copyFile, open, readFile, readlink, stat, truncate } from 'node:fs/promises';
import path from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import type { Cluster } from './cluster';
import { asUser } from './system-user';

const logSizeMaxBytes = 8 * 1024 * 1024;

/** The contents of `postmaster.pid`. */
export interface PostmasterFile {
  pid: number;
  port: number;
}

/** A postmaster that we spawned; `exited` returns whether it has ended. */
export interface SpawnedPostmaster {
  pid: number;
  port: number;
  exited: () => boolean;
}

/**
 * Passed on the command line: they apply to existing clusters and ALTER SYSTEM cannot change them. Errors of
 * applications are logged as ERROR; statements and details are not logged, because they contain user data.
 */
const settings = {
  listen_addresses: '127.0.0.1',
  unix_socket_directories: '',
  cluster_name: 'granary',
  fsync: 'on',
  synchronous_commit: 'on',
  full_page_writes: 'on',
  max_connections: '200',
  shared_buffers: '128MB',
  max_wal_size: '1GB',
  // Keeps log files for reuse: creating one makes commits wait for 16 MiB of zeros.
  min_wal_size: '1GB',
  random_page_cost: '1.1',
  jit: 'off',
  timezone: 'UTC',
  log_timezone: 'UTC',
  log_line_prefix: '%m [%p] ',
  log_min_messages: 'warning',
  log_min_error_statement: 'panic',
  log_error_verbosity: 'terse',
  log_checkpoints: 'off',
};

/** Reads `postmaster.pid`; undefined if it is missing or incomplete. */
export async function readPostmasterFile(cluster: Cluster): Promise<PostmasterFile | undefined> {
  try {
    const lines = (await readFile(path.join(cluster.directory, 'postmaster.pid'), 'utf8')).split('\n');
    const pid = Number(lines[0]);
    const port = Number(lines[3]);
    return pid > 0 ? { pid, port: port > 0 ? port : 0 } : undefined;
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'ENOENT') return undefined;
    throw error;
  }
}

/** Whether a process id belongs to the cluster's postmaster (`ours`), to no running process, or to another process. */
export async function judgeProcess(cluster: Cluster, pid: number): Promise<'ours' | 'gone' | 'foreign'> {
  if (process.platform !== 'linux') return isRunning(pid) ? 'ours' : 'gone';
  const line = await readFile(`/proc/${pid}/stat`, 'utf8').catch(() => undefined);
  if (line === undefined) return 'gone';
  const [, name, state] = /\((.*)\) (\S)/s.exec(line) ?? [];
  if (state === 'Z' || state === 'X') return 'gone';
  if (name !== 'postgres') return 'foreign';
  // The postmaster's working directory is its cluster. If it cannot be read, the caller checks the server on the port.
  const folder = await readlink(`/proc/${pid}/cwd`).catch(() => undefined);
  return folder === undefined || folder === cluster.directory ? 'ours' : 'foreign';
}

/**
 * Starts a postmaster in its own process group, so that Ctrl-C does not reach it before the services have finished.
 * `stalePid` is the id in a left-over postmaster.pid. It belongs to no postmaster of this cluster, but perhaps to
 * another process or to a zombie (both are common in containers). As PG_GRANDPARENT_PID it does not block the start,
 * and Postgres still checks that no shared memory is in use.
 */
export async function spawnPostmaster(
  cluster: Cluster,
  port: number,
  stalePid: number | undefined,
): Promise<SpawnedPostmaster> {
  await boundLog(cluster.logFile);
  const log = await open(cluster.logFile, 'a', 0o600);
  try {
    const options = Object.entries(settings).flatMap(([name, value]) => ['-c', `${name}=${value}`]);
    const child = spawn(cluster.binaries.postgres, ['-D', cluster.directory, '-p', String(port), ...options], {
      ...asUser(cluster.user),
      detached: true,
      stdio: ['ignore', log.fd, log.fd],
      env: {
        PATH: process.env.PATH,
        LC_ALL: 'C',
        ...(stalePid === undefined ? {} : { PG_GRANDPARENT_PID: String(stalePid) }),
      },
    });
    await new Promise((resolve, reject) => child.once('spawn', resolve).once('error', reject));
    child.unref();
    return { pid: child.pid ?? 0, port, exited: () => child.exitCode !== null || child.signalCode !== null };
  } finally {
    await log.close();
  }
}

/**
 * Ends a postmaster: fast shutdown; after `fastMs` an immediate one (the next start then recovers from the log); a
 * second later SIGKILL, after which its children end by themselves.
 */
export async function endPostmaster(pid: number, isGone: () => Promise<boolean>, fastMs: number): Promise<void> {
  for (const [signal, waitMs] of [
    ['SIGINT', fastMs],
    ['SIGQUIT', 1000],
    ['SIGKILL', 500],
  ] as const) {
    if (await isGone()) return;
    signalProcess(pid, signal);
    const deadline = Date.now() + waitMs;
    while (Date.now() < deadline) {
      if (await isGone()) return;
      await delay(20);
    }
  }
}

/** Rotates the log, with one older file. Postgres opens it for appending, so it can be truncated in place. */
export async function boundLog(logFile: string): Promise<void> {
  try {
    if ((await stat(logFile)).size <= logSizeMaxBytes) return;
    await copyFile(logFile, `${logFile}.1`);
    await truncate(logFile);
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'ENOENT') throw error;
  }
}

/** The last lines of the log, for the message of a failed start. */
export async function lastLines(logFile: string): Promise<string> {
  const text = await readFile(logFile, 'utf8').catch(() => '');
  return text.trim().split('\n').slice(-5).join('\n');
}

function isRunning(pid: number): boolean {
  try {
    process.kill(pid, 0);
    return true;
  } catch (error) {
    return (error as NodeJS.ErrnoException).code === 'EPERM';
  }
}

function signalProcess(pid: number, signal: NodeJS.Signals): void {
  try {
    process.kill(pid, signal);
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'ESRCH') throw error;
  }
}
