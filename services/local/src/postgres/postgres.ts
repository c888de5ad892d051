import { setTimeout as delay } from 'node:timers/promises';
import type { Client } from 'pg';
import { openCluster, sweepStaging, type Cluster, type PostgresLog } from './cluster';
import { isWithoutRoom } from './room';
import { AlreadyRunningError, connectAsSuperuser, takeOwnership, type Ownership } from './ownership';
import { boundLog, endPostmaster, judgeProcess } from './postmaster';
import { chooseWalSync, hasDefaultWalSync } from './wal-sync';

const fastShutdownMs = 3000;
const logCheckIntervalMs = 60_000;
const crashesMax = 5;
const crashWindowMs = 60_000;
/** The pause between two attempts on a full disk. */
const fullDiskPauseMs = 1_000;
const databaseLockKey = 4_702_117_306;

export interface EmbeddedPostgres {
  port: number;
  /** True when this Postgres was left by a Node that was killed. */
  adopted: boolean;
  /** The directory to which the server's binaries were copied, if they could not be run from node_modules. */
  binariesCopiedTo?: string;
  /** Connection URL; without a role, the superuser's. Valid until `stop`, also across crashes of Postgres. */
  url: (database: string, role?: string) => string;
  /** Creates the role and its database, which only it may enter, unless they exist; returns their URL. */
  ensureDatabase: (database: string, role: string) => Promise<string>;
  /** Process id of the current postmaster; it changes when a crashed one is replaced. */
  postmasterPid: () => number;
  /** Stops Postgres within 4.5 s. Connections are cut, so close the pools first. */
  stop: () => Promise<void>;
}

/**
 * Starts a durable Postgres 18 on `<dataDir>/postgres`, or takes over one that a killed Node has left there. It listens
 * on 127.0.0.1 only. A postmaster that dies is replaced on the same port; when that fails, `onFailure` is called once,
 * and only `stop` remains to be called.
 * @throws AlreadyRunningError when another Granary runs on this directory
 */
export async function startPostgres(options: {
  dataDir: string;
  log: PostgresLog;
  /** Whether a cluster tries once which way to make its log durable is faster, see `chooseWalSync`. */
  choosesWalSync?: boolean;
  onFailure?: (error: Error) => void;
}): Promise<EmbeddedPostgres> {
  const { log, onFailure } = options;
  const cluster = await openCluster(options.dataDir, log);
  const owned = await takeOwnership(cluster);
  log.info(`${owned.adopted ? 'took over' : 'started'} Postgres (pid ${owned.pid}) on port ${owned.port}`);
  const supervisor = new Supervisor(cluster, log, owned, onFailure);
  await sweepStaging(cluster.dataDir);
  const { port, adopted } = owned;
  if (options.choosesWalSync) await tryWalSyncOnce(owned.lock, log);
  const { copiedTo } = cluster.binaries;
  return {
    port,
    adopted,
    ...(copiedTo === undefined ? {} : { binariesCopiedTo: copiedTo }),
    url: (database, role) => urlOf(cluster, port, database, role),
    ensureDatabase: (database, role) => ensureDatabase(cluster, port, database, role),
    postmasterPid: () => supervisor.pid,
    stop: () => supervisor.stop(),
  };
}

/** Restarts Postgres on its port whenever it dies, until it is stopped. */
class Supervisor {
  private readonly port: number;
  private readonly logCheck: NodeJS.Timeout;
  private readonly crashedAtMs: number[] = [];
  private isTakenByAnother = false;
  private stopping: Promise<void> | undefined;
  private recovery: Promise<void> | undefined;

  constructor(
    private readonly cluster: Cluster,
    private readonly log: PostgresLog,
    private owned: Ownership,
    private readonly onFailure: ((error: Error) => void) | undefined,
  ) {
    this.port = owned.port;
    this.logCheck = setInterval(() => {
      boundLog(cluster.logFile).catch((error: unknown) => log.warn(`postgres.log: ${String(error)}`));
    }, logCheckIntervalMs).unref();
    this.watch();
  }

  get pid(): number {
    return this.owned.pid;
  }

  stop(): Promise<void> {
    return (this.stopping ??= this.end());
  }

  private async end(): Promise<void> {
    clearInterval(this.logCheck);
    await this.recovery;
    const isGone = async (): Promise<boolean> => (await judgeProcess(this.cluster, this.pid)) !== 'ours';
    if (!this.isTakenByAnother) await endPostmaster(this.pid, isGone, fastShutdownMs);
    await this.owned.lock.end().catch(() => undefined);
    this.log.info('stopped Postgres');
  }

  /** The lock's connection ends with the postmaster, and with every crash of a backend that makes it start over. */
  private watch(): void {
    this.owned.lock.once('end', () => {
      if (!this.stopping) this.recovery = this.recover();
    });
  }

  private async recover(): Promise<void> {
    this.log.warn('lost Postgres, restarting it');
    try {
      // On a full disk Postgres crashes with every write; those crashes do not count.
      if (await isWithoutRoom(this.cluster.directory)) await delay(fullDiskPauseMs);
      else this.countCrash();
      this.owned = await this.restart();
      this.watch();
      this.log.info(`restarted Postgres (pid ${this.pid}) on port ${this.port}`);
    } catch (error) {
      this.isTakenByAnother = error instanceof AlreadyRunningError;
      if (!this.stopping) this.onFailure?.(error as Error);
    }
  }

  private countCrash(): void {
    this.crashedAtMs.push(Date.now());
    if (this.crashedAtMs.filter((atMs) => atMs > Date.now() - crashWindowMs).length > crashesMax) {
      throw new Error(`Postgres crashed ${crashesMax} times in a minute; see ${this.cluster.logFile}.`);
    }
  }

  /** On a full disk a start is retried until there is space. */
  private async restart(): Promise<Ownership> {
    for (let attempt = 1; ; attempt++) {
      try {
        return await takeOwnership(this.cluster, this.port, () => this.stopping !== undefined);
      } catch (error) {
        if (this.stopping || error instanceof AlreadyRunningError) throw error;
        if (!(await isWithoutRoom(this.cluster.directory))) throw error;
        if (attempt === 1)
          this.log.warn('Postgres cannot start because the disk is full; retrying until there is space');
        await delay(fullDiskPauseMs);
      }
    }
  }
}

/** A cluster on which this fails is as durable as any other. */
async function tryWalSyncOnce(client: Client, log: PostgresLog): Promise<void> {
  try {
    const choice = (await hasDefaultWalSync(client)) ? await chooseWalSync(client) : undefined;
    if (choice) log.info(`commits are made durable by ${choice.method}`);
  } catch (error) {
    log.warn(`which wal_sync_method is faster could not be tried: ${(error as Error).message}`);
  }
}

function urlOf(cluster: Cluster, port: number, database: string, role = 'postgres'): string {
  return `postgres://${role}:${cluster.passwordOf(role)}@127.0.0.1:${port}/${database}?sslmode=disable`;
}

async function ensureDatabase(cluster: Cluster, port: number, database: string, role: string): Promise<string> {
  for (const name of [database, role]) {
    if (!/^[a-z_][a-z0-9_]{0,62}$/.test(name)) throw new Error(`${name} is not a plain name`);
  }
  const client = connectAsSuperuser(cluster, port);
  client.on('error', () => undefined);
  await client.connect();
  try {
    await client.query('select pg_advisory_lock($1)', [databaseLockKey]);
    const existing = await client.query<{ role: boolean; database: boolean }>(
      `select exists (select from pg_roles where rolname = $1) as role,
              exists (select from pg_database where datname = $2) as database`,
      [role, database],
    );
    if (!existing.rows[0]?.role) await client.query(`create role ${role} login password '${cluster.passwordOf(role)}'`);
    if (!existing.rows[0]?.database) await client.query(`create database ${database} owner ${role} template template0`);
    await client.query(`revoke connect, temporary on database ${database} from public`);
    return urlOf(cluster, port, database, role);
  } finally {
    await client.end();
  }
}
