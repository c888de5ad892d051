import { startConstellation } from '@granary/local/start/constellation';
import { readConfig } from '@granary/shared/config';
import { collectSeldom } from '@granary/shared/service/v8';
import { createLogger } from '@granary/shared/logger';
import { telemetrySchema } from '@granary/shared/telemetry/settings';
import { startTelemetry } from '@granary/shared/telemetry/start';
import { serve } from '../child.mjs';

/** Granary as in `npm start`: all six services in this process. */
let running;
let telemetry;

serve({
  start: async ({ databaseUrls, directory, operatorKey, internalSecret, settings }) => {
    collectSeldom();
    const log = createLogger('bench', 'error');
    // Off, unless the environment of the measurement overrides it.
    telemetry = await startTelemetry('granary', readConfig(telemetrySchema, process.env), log);
    running = await startConstellation({
      databaseUrls,
      directory,
      operatorKey,
      internalSecret,
      host: '127.0.0.1',
      port: 0,
      transport: 'direct',
      log,
      settings,
    });
    return { port: running.port };
  },
  stop: async () => {
    await running?.stop();
    await telemetry?.stop();
  },
});
