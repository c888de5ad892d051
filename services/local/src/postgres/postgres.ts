import { setTimeout as delay } from 'node:timers/promises';
import { openCluster, sweepStaging, type PostgresLog } from './cluster';
import { isWithoutRoom } from './room';
import { AlreadyRunningError, connectAsSuperuser, takeOwnership, type Ownership } from './ownership';
import { boundLog, endPostmaster, judgeProcess } from './postmaster';

const fastShutdownMs = 3000;
const logCheckIntervalMs = 60_000;
const crashesMax = 5;
const crashWindowMs = 60_000;
/** Between two tries on a full disk. */
const fullDiskPauseMs = 1_000;
const databaseLockKey = 4_702_117_306;

export interface EmbeddedPostgres {
  port: number;
  /** True when this Postgres had been left by a Node that was killed. */
  adopted: boolean;
  /** Where the server's binaries had to be copied to, when they could not be run from node_modules. */
  binariesCopiedTo?: string;
  /** Connection URL; without a role, the superuser's. Valid until `stop`, also across crashes of Postgres. */
  url: (database: string, role?: string) => string;
  /** Makes the role, and the database that it owns and it alone may enter, when they are absent; answers their URL. */
  ensureDatabase: (database: string, role: string) => Promise<string>;
  /** Process id of the postmaster now; it changes when a crashed one is replaced. */
  postmasterPid: () => number;
  /** Ends Postgres within 4.5 s. Connections are cut, so close the pools first. */
  stop: () => Promise<void>;
}

/**
 * Starts a durable Postgres 18 on `<dataDir>/postgres`, or takes over one that a killed Node has left there. It listens
 * on 127.0.0.1 only. A postmaster that dies is replaced on the same port; when that does not help, `onFailure` is
 * called once: what is left to do then is `stop`.
 * @throws AlreadyRunningError when another Granary runs on this directory
 */
export async function startPostgres(options: {
  dataDir: string;
  log: PostgresLog;
  onFailure?: (error: Error) => void;
}): Promise<EmbeddedPostgres> {
  const { log } = options;
  const cluster = await openCluster(options.dataDir, log);
  const first = await takeOwnership(cluster);
  log.info(`${first.adopted ? 'took over' : 'started'} Postgres (pid ${first.pid}) on port ${first.port}`);

  let owned: Ownership = first;
  let lost = false;
  let stopping: Promise<void> | undefined;
  let recovery: Promise<void> | undefined;
  const crashes: number[] = [];
  const logCheck = setInterval(() => {
    boundLog(cluster.logFile).catch((error: unknown) => log.warn(`postgres.log: ${String(error)}`));
  }, logCheckIntervalMs).unref();

  const watch = (): void => {
    owned.lock.once('end', () => {
      if (!stopping) recovery = recover();
    });
  };

  /** Where the disk is full a start is tried again until there is room; nothing else would bring Postgres back. */
  const bringBack = async (): Promise<Ownership> => {
    for (let attempt = 1; ; attempt++) {
      try {
        return await takeOwnership(cluster, first.port, () => stopping !== undefined);
      } catch (error) {
        if (stopping || error instanceof AlreadyRunningError || !(await isWithoutRoom(cluster.directory))) throw error;
        if (attempt === 1) log.warn('Postgres cannot start because the disk is full, trying until there is room');
        await delay(fullDiskPauseMs);
      }
    }
  };

  // The lock's connection ends with the postmaster, and with every crash of a backend that makes it start over.
  const recover = async (): Promise<void> => {
    log.warn('lost Postgres, bringing it back');
    try {
      // For want of room it crashes as often as something is written: that is no reason to give up.
      if (await isWithoutRoom(cluster.directory)) await delay(fullDiskPauseMs);
      else crashes.push(Date.now());
      if (crashes.filter((at) => at > Date.now() - crashWindowMs).length > crashesMax) {
        throw new Error(`Postgres crashed ${crashesMax} times in a minute; see ${cluster.logFile}.`);
      }
      owned = await bringBack();
      watch();
      log.info(`Postgres is back (pid ${owned.pid}) on port ${owned.port}`);
    } catch (error) {
      lost = error instanceof AlreadyRunningError;
      if (!stopping) options.onFailure?.(error as Error);
    }
  };

  const stop = async (): Promise<void> => {
    clearInterval(logCheck);
    await recovery;
    const isGone = async (): Promise<boolean> => (await judgeProcess(cluster, owned.pid)) !== 'ours';
    if (!lost) await endPostmaster(owned.pid, isGone, fastShutdownMs);
    await owned.lock.end().catch(() => undefined);
    log.info('stopped Postgres');
  };

  const url = (database: string, role = 'postgres'): string =>
    `postgres://${role}:${cluster.passwordOf(role)}@127.0.0.1:${first.port}/${database}?sslmode=disable`;

  const ensureDatabase = async (database: string, role: string): Promise<string> => {
    for (const name of [database, role]) {
      if (!/^[a-z_][a-z0-9_]{0,62}$/.test(name)) throw new Error(`${name} is not a plain name`);
    }
    const client = connectAsSuperuser(cluster, first.port);
    client.on('error', () => undefined);
    await client.connect();
    try {
      await client.query('select pg_advisory_lock($1)', [databaseLockKey]);
      const found = await client.query<{ role: boolean; database: boolean }>(
        `select exists (select from pg_roles where rolname = $1) as role,
                exists (select from pg_database where datname = $2) as database`,
        [role, database],
      );
      if (!found.rows[0]?.role) await client.query(`create role ${role} login password '${cluster.passwordOf(role)}'`);
      if (!found.rows[0]?.database) await client.query(`create database ${database} owner ${role} template template0`);
      await client.query(`revoke connect, temporary on database ${database} from public`);
      return url(database, role);
    } finally {
      await client.end();
    }
  };

  watch();
  await sweepStaging(cluster.dataDir);
  return {
    port: first.port,
    adopted: first.adopted,
    ...(cluster.binaries.copiedTo === undefined ? {} : { binariesCopiedTo: cluster.binaries.copiedTo }),
    url,
    ensureDatabase,
    postmasterPid: () => owned.pid,
    stop: () => (stopping ??= stop()),
  };
}
