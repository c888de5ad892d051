import { realpath } from 'node:fs/promises';
import { setTimeout as delay } from 'node:timers/promises';
import { Client, DatabaseError } from 'pg';
import { Backoff } from '@granary/shared/concurrency/backoff';
import { StartError } from '@granary/shared/start-error';
import { choosePorts } from '../ports';
import type { Cluster } from './cluster';
import {
  endPostmaster,
  judgeProcess,
  lastLines,
  readPostmasterFile,
  spawnPostmaster,
  type SpawnedPostmaster,
} from './postmaster';

const lockKey = 4_702_117_305;
/**
 * The server notices the closed connection of a killed process a moment later, and a stopping Granary needs a moment.
 */
const lockPatienceMs = 3000;
/** A start fails after this long without progress: neither a new process nor a response. */
const startPatienceMs = 15_000;

/** Another Granary has locked the data directory. */
export class AlreadyRunningError extends StartError {
  constructor(dataDir: string) {
    super(`Granary is already running on ${dataDir}. Stop it, or choose another directory with --data-dir (DATA_DIR).`);
  }
}

/** A running Postgres, owned as long as `lock`, the connection with the advisory lock, is open. */
export interface Ownership {
  pid: number;
  port: number;
  lock: Client;
  /** True if the postmaster was already running, left by a killed process. */
  adopted: boolean;
}

export function connectAsSuperuser(cluster: Cluster, port: number, database = 'postgres'): Client {
  return new Client({
    host: '127.0.0.1',
    port,
    database,
    user: 'postgres',
    password: cluster.passwordOf('postgres'),
    ssl: false,
    connectionTimeoutMillis: 5000,
  });
}

/**
 * Starts the cluster's Postgres, or takes over a running one, and acquires ownership by a session-level advisory lock.
 * The kernel closes the connection of a process that dies, which releases the lock. Nothing here removes
 * postmaster.pid: Postgres itself ensures that at most one postmaster uses the files.
 * @param port a required port (after a crash, when pools use it already); otherwise any free one
 * @throws AlreadyRunningError if another process holds the lock
 */
export async function takeOwnership(cluster: Cluster, port?: number, aborted?: () => boolean): Promise<Ownership> {
  let spawned: SpawnedPostmaster | undefined;
  let refusedSince: number | undefined;
  let lastMove = Date.now();
  const respawn = new Backoff({ firstMs: 100, maxMs: 1_000 });
  let problem = '';
  try {
    for (;;) {
      const file = await readPostmasterFile(cluster);
      const judgement = file ? await judgeProcess(cluster, file.pid) : 'gone';
      if (file && judgement === 'ours') {
        const answer = await askForLock(cluster, file.port);
        if (answer instanceof Client) {
          return { pid: file.pid, port: file.port, lock: answer, adopted: file.pid !== spawned?.pid };
        }
        if (answer.state === 'refused') {
          refusedSince ??= Date.now();
          if (Date.now() - refusedSince > lockPatienceMs) throw new AlreadyRunningError(cluster.dataDir);
        } else {
          refusedSince = undefined;
        }
        // A server that recovers or shuts down reports it and may take its time.
        if (answer.state === 'silent') problem = answer.problem;
        else lastMove = Date.now();
      } else if (!spawned || spawned.exited()) {
        if (spawned) {
          problem = await lastLines(cluster.logFile);
          // Children of a killed postmaster may hold its shared memory for a moment.
          await respawn.wait();
        }
        spawned = await spawnPostmaster(cluster, port ?? (await choosePorts(1))[0]!, file?.pid);
      }
      if (aborted?.()) throw new Error('The start of Postgres was interrupted.');
      if (Date.now() - lastMove > startPatienceMs) {
        throw doesNotStart(cluster, problem);
      }
      await delay(25);
    }
  } catch (error) {
    // Another process may have locked the postmaster that we spawned.
    if (spawned && !(error instanceof AlreadyRunningError)) {
      const child = spawned;
      await endPostmaster(child.pid, () => Promise.resolve(child.exited()), 2000);
    }
    throw error;
  }
}

function doesNotStart({ dataDir, directory, logFile }: Cluster, problem: string): StartError {
  if (problem.includes('No space left on device')) {
    return new StartError(`The disk of ${dataDir} is full. Free some space and start again.`);
  }
  const why = problem === '' ? ' it does not respond.' : `\n${problem}\n`;
  return new StartError(`Postgres does not start on ${directory}:${why} Its log is ${logFile}.`);
}

/**
 * Why the lock was not acquired: another process holds it, the server starts or stops, or it does not respond properly.
 */
type NoLock = { state: 'refused' } | { state: 'busy' } | { state: 'silent'; problem: string };

async function askForLock(cluster: Cluster, port: number): Promise<Client | NoLock> {
  if (port === 0) return { state: 'silent', problem: 'postmaster.pid is incomplete' };
  const client = connectAsSuperuser(cluster, port);
  // The `end` event reports an unexpected end; without a listener an `error` would end the process.
  client.on('error', () => undefined);
  let locked = false;
  try {
    await client.connect();
    const shown = await client.query<{ data_directory: string }>('show data_directory');
    const served = shown.rows[0]?.data_directory ?? '';
    if ((await realpath(served).catch(() => served)) !== cluster.directory) {
      return { state: 'silent', problem: `port ${port} serves ${served}` };
    }
    const tried = await client.query<{ locked: boolean }>('select pg_try_advisory_lock($1) as locked', [lockKey]);
    locked = tried.rows[0]?.locked ?? false;
    return locked ? client : { state: 'refused' };
  } catch (error) {
    // SQLSTATE cannot_connect_now and admin_shutdown: starting up, recovering or shutting down.
    if (error instanceof DatabaseError && (error.code === '57P03' || error.code === '57P01')) return { state: 'busy' };
    if (error instanceof DatabaseError && error.code === '28P01') {
      throw new StartError(
        `Postgres on ${cluster.directory} does not accept the password in ${cluster.dataDir}: one of them was ` +
          'replaced. Put back postgres/ and postgres-password from the same backup.',
        { cause: error },
      );
    }
    return { state: 'silent', problem: (error as Error).message };
  } finally {
    if (!locked) await client.end().catch(() => undefined);
  }
}
