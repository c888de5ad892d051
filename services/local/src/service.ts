import { ConfigError } from '@granary/shared/config';
import { newSecret } from '@granary/shared/ids';
import { stopAll, type Running } from '@granary/shared/lifecycle';
import type { Logger } from '@granary/shared/logger';
import { startTelemetry } from '@granary/shared/telemetry/telemetry';
import type { LocalConfig } from './config';
import { databaseServices, startConstellation, type Constellation, type DatabaseService } from './constellation';
import { curlLines, demoApp } from './demo-app';
import { resolveDataDir } from './postgres/data-dir';
import { startPostgres } from './postgres/postgres';
import { keptSecret } from './secrets';

export interface Local extends Running {
  url: string;
}

/**
 * Granary on one machine: an embedded Postgres and all services in this process. `say` gets the lines for the person
 * who started it. Throws when another Granary runs on the data directory.
 */
export async function startLocal(config: LocalConfig, log: Logger, say: (line: string) => void): Promise<Local> {
  const { dataDir, note } = await resolveDataDir({ explicit: config.DATA_DIR, defaultDir: '.granary' });
  if (note) say(note);
  let fail: (error: Error) => void = () => {};
  const failed = new Promise<never>((_, reject) => {
    fail = reject;
  });
  failed.catch(() => {});
  const stops: Array<() => Promise<void>> = [];
  try {
    const telemetry = await startTelemetry('granary', config, log);
    stops.push(() => telemetry.stop());
    const postgres = await startPostgres({
      dataDir,
      log: { info: (text) => log.info(text), warn: (text) => log.warn(text) },
      onFailure: fail,
    });
    stops.push(() => postgres.stop());
    if (postgres.binariesCopiedTo) say(`Postgres runs from ${postgres.binariesCopiedTo}, which its user can enter.`);
    const databaseUrls = {} as Record<DatabaseService, string>;
    for (const service of databaseServices) {
      databaseUrls[service] = await postgres.ensureDatabase(`granary_${service}`, `granary_${service}`);
    }
    const operatorKey = config.OPERATOR_KEY ?? (await keptSecret(dataDir, 'operator-key', 'op_'));
    const constellation = await listening(config, () =>
      startConstellation({
        databaseUrls,
        directory: dataDir,
        host: config.HOST,
        port: config.PORT,
        operatorKey,
        internalSecret: newSecret('internal_'),
        transport: 'direct',
        log,
      }),
    );
    stops.push(() => constellation.stop());
    const app = await demoApp(constellation.url, operatorKey, dataDir);
    say(`Granary is ready at ${constellation.url}`);
    say(`  data directory: ${dataDir}`);
    say(`  operator key: ${operatorKey}`);
    say(`  demo app: ${app.appId}`);
    say(`  demo app key: ${app.key}`);
    say('');
    say('Five calls to begin with:');
    say('');
    for (const line of curlLines(constellation.url, app)) say(`${line}\n`);
    return { url: constellation.url, stop: () => stopAll(stops), failed };
  } catch (error) {
    await stopAll(stops).catch(() => {});
    throw error;
  }
}

async function listening(config: LocalConfig, start: () => Promise<Constellation>): Promise<Constellation> {
  try {
    return await start();
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'EADDRINUSE') throw error;
    throw new ConfigError(`Port ${config.PORT} is taken. Choose another with --port, or 0 for any free one.`);
  }
}
