import { startConstellation, type Constellation, type ConstellationOptions } from '@granary/local/start/constellation';
import { readConfig } from '@granary/shared/config';
import { collectSeldom } from '@granary/shared/service/v8';
import { createLogger } from '@granary/shared/logger';
import { telemetrySchema } from '@granary/shared/telemetry/settings';
import { startTelemetry, type Telemetry } from '@granary/shared/telemetry/start';
import { serve } from '../child';

/** Granary as in `npm start`: all six services in this process. */
let granary: Constellation | undefined;
let telemetry: Telemetry | undefined;

/** Settings of services, by their names. */
export type ServiceSettings = NonNullable<ConstellationOptions['settings']>;

interface Start extends Pick<ConstellationOptions, 'databaseUrls' | 'directory' | 'operatorKey' | 'internalSecret'> {
  settings?: ServiceSettings;
}

const calls = {
  start: async (options: Start) => {
    collectSeldom();
    const log = createLogger('bench', 'error');
    // Telemetry is off unless the environment of the measurement turns it on.
    telemetry = await startTelemetry('granary', readConfig(telemetrySchema, process.env), log);
    granary = await startConstellation({
      ...options,
      host: '127.0.0.1',
      port: 0,
      transport: 'direct',
      log,
    });
    return { port: granary.port };
  },
  stop: async () => {
    await granary?.stop();
    await telemetry?.stop();
  },
};

export type EmbeddedCalls = typeof calls;

serve(calls);
