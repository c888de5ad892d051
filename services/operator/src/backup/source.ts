import path from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { Client, type ClientConfig } from 'pg';
import { ConfigError } from '@granary/shared/config';
import { openCluster, type Cluster, type PostgresLog } from '@granary/local/postgres/cluster';
import { resolveDataDir } from '@granary/local/postgres/data-dir';
import { connectAsSuperuser } from '@granary/local/postgres/ownership';
import { judgeProcess, readPostmasterFile } from '@granary/local/postgres/postmaster';
import { startPostgres } from '@granary/local/postgres/postgres';
import { exists } from '@granary/local/postgres/system-user';
import type { Say } from '../program/progress';

const answerPatienceMs = 30_000;

/** A data directory with a running Postgres, which ran before or was started for this. */
export interface Source {
  dataDir: string;
  /** Opens a superuser connection to a database. */
  connect(database: string): Promise<Client>;
  /** Opens a superuser connection for replication commands. */
  connectForReplication(): Promise<Client>;
  stop(): Promise<void>;
}

/** Returns the given data directory, else the existing default directory of `npm start` or `npm run stack`. */
export async function chooseDataDir(explicit: string | undefined): Promise<string> {
  if (explicit !== undefined) return (await resolveDataDir({ explicit, defaultDir: explicit })).dataDir;
  const directories = new Set<string>();
  for (const defaultDir of ['.granary', '.granary-stack']) {
    const { dataDir } = await resolveDataDir({ defaultDir });
    if (await exists(path.join(dataDir, 'postgres'))) directories.add(dataDir);
  }
  const [dataDir, second] = [...directories];
  if (dataDir === undefined) throw new ConfigError('No data directory was found; name it with --data-dir.');
  if (second !== undefined) {
    throw new ConfigError(`There are two data directories, ${dataDir} and ${second}; name one with --data-dir.`);
  }
  return dataDir;
}

/** Connects to the Postgres of a data directory; starts it if it is not running. */
export async function openSource(dataDir: string, say: Say): Promise<Source> {
  if (!(await exists(path.join(dataDir, 'postgres', 'PG_VERSION')))) {
    throw new ConfigError(
      (await exists(path.join(dataDir, 'docker')))
        ? `The databases of ${dataDir} are in volumes of Docker, which this command does not reach.`
        : `There is no Postgres cluster in ${dataDir}; an external Postgres has tools of its own.`,
    );
  }
  const cluster = await openCluster(dataDir, quiet(say));
  const port = await runningPort(cluster);
  if (port !== undefined) return { ...connections(cluster, port), stop: () => Promise.resolve() };
  say('Granary is not running; its Postgres is started for this.');
  const postgres = await startPostgres({ dataDir, log: quiet(say) });
  return { ...connections(cluster, postgres.port), stop: () => postgres.stop() };
}

/** The port of the running cluster; undefined if it is not running. */
export async function runningPort(cluster: Cluster): Promise<number | undefined> {
  for (const untilMs = Date.now() + answerPatienceMs; ;) {
    const file = await readPostmasterFile(cluster);
    if (file === undefined || (await judgeProcess(cluster, file.pid)) !== 'ours') return undefined;
    try {
      await (await connected(connectAsSuperuser(cluster, file.port))).end();
      return file.port;
    } catch (error) {
      // It may be starting or shutting down.
      if (Date.now() > untilMs) {
        throw new ConfigError(
          `Postgres runs on ${cluster.directory} and does not respond: ${(error as Error).message}`,
        );
      }
      await delay(100);
    }
  }
}

/** Prints only the warnings of Postgres's start log. */
export const quiet = (say: Say): PostgresLog => ({ info: () => {}, warn: say });

function connections(cluster: Cluster, port: number): Omit<Source, 'stop'> {
  return {
    dataDir: cluster.dataDir,
    connect: (database) => connected(connectAsSuperuser(cluster, port, database)),
    connectForReplication: () => {
      // The types of `pg` lack this setting, which it passes to Postgres.
      const settings: ClientConfig & { replication: string } = {
        host: '127.0.0.1',
        port,
        user: 'postgres',
        password: cluster.passwordOf('postgres'),
        ssl: false,
        connectionTimeoutMillis: 5000,
        replication: 'true',
      };
      return connected(new Client(settings));
    },
  };
}

async function connected(client: Client): Promise<Client> {
  // The next statement reports an unexpected end; without a listener it would end the process.
  client.on('error', () => {});
  await client.connect();
  return client;
}
