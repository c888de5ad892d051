import path from 'node:path';
import type { Environment } from '@granary/shared/config';
import { newSecret } from '@granary/shared/ids';
import { stopAll, type Running } from '@granary/shared/service/lifecycle';
import type { Logger } from '@granary/shared/logger';
import { startTelemetry } from '@granary/shared/telemetry/start';
import type { LocalConfig } from './config';
import { databaseServices, startConstellation, type DatabaseService } from './start/constellation';
import { demoApp } from './start/demo-app';
import { openDataDirectory } from './postgres/data-directory';
import { startPostgres, type EmbeddedPostgres } from './postgres/postgres';
import { exists } from './postgres/system-user';
import { requireFree } from './ports';
import { readyLines } from './start/ready';
import { withProgress } from './start/progress';
import { noteRunning } from './processes/running';
import { keptSecret } from './start/secrets';

export interface LocalOptions {
  config: LocalConfig;
  /** Settings of the services, see start/settings.ts. */
  environment: Environment;
  log: Logger;
  /** Prints a line for the user. */
  say: (line: string) => void;
}

export interface Local extends Running {
  url: string;
}

/**
 * Starts Granary on one machine: an embedded Postgres and all services in this process. Throws a StartError if another
 * Granary runs on the data directory.
 */
export async function startLocal({ config, environment, log, say }: LocalOptions): Promise<Local> {
  // The address is checked before anything is made: the gateway takes it last, when a first start has made a database.
  await requireFree(config.HOST, config.PORT);
  const dataDir = await openDataDirectory({ explicit: config.DATA_DIR, defaultDir: '.granary', say });
  let fail: (error: Error) => void = () => {};
  const failed = new Promise<never>((_, reject) => {
    fail = reject;
  });
  failed.catch(() => {});
  const stops: Array<() => Promise<void>> = [];
  const localLog = log.child({ service: 'local' });
  try {
    const telemetry = await startTelemetry('granary', config, localLog);
    stops.push(() => telemetry.stop());
    const openDatabases = async () => {
      const postgres = await startPostgres({
        dataDir,
        choosesWalSync: true,
        log: { info: (text) => localLog.info(text), warn: (text) => localLog.warn(text) },
        onFailure: fail,
      });
      stops.push(() => postgres.stop());
      return { postgres, databaseUrls: await ensureDatabases(postgres) };
    };
    const isFirst = !(await exists(path.join(dataDir, 'postgres')));
    const { postgres, databaseUrls } = isFirst
      ? await withProgress(say, 'Creating the database', openDatabases)
      : await openDatabases();
    if (postgres.binariesCopiedTo)
      say(`Postgres runs from ${postgres.binariesCopiedTo}, a directory that its user can read.`);
    const operatorKey = config.OPERATOR_KEY ?? (await keptSecret(dataDir, 'operator-key', 'op_'));
    const constellation = await startConstellation({
      databaseUrls,
      directory: dataDir,
      host: config.HOST,
      port: config.PORT,
      operatorKey,
      internalSecret: newSecret('internal_'),
      transport: 'direct',
      log,
      environment,
    });
    stops.push(() => constellation.stop());
    constellation.failed.catch(fail);
    const { url, leavingMs = 0 } = constellation;
    const app = await demoApp(url, operatorKey, dataDir);
    stops.push(await noteRunning(dataDir, url));
    const { SHOW_KEYS: showKeys, HOST: host } = config;
    const isKeyKept = config.OPERATOR_KEY === undefined;
    const ready = { url, environment, host, dataDir, operatorKey, isKeyKept, app, showKeys };
    for (const line of readyLines(ready)) say(line);
    return { url, leavingMs, stop: () => stopAll(stops), failed };
  } catch (error) {
    await stopAll(stops).catch(() => {});
    throw error;
  }
}

async function ensureDatabases(postgres: EmbeddedPostgres): Promise<Record<DatabaseService, string>> {
  const urls = {} as Record<DatabaseService, string>;
  for (const service of databaseServices) {
    urls[service] = await postgres.ensureDatabase(`granary_${service}`, `granary_${service}`);
  }
  return urls;
}
