import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { askTestStack } from '@granary/testing/stack';
import { isOnStack, suite, type Granary } from './granary';
import { cloneDatabases, type DatabaseUrls, type Templates } from './granary-databases';
import { optionsWith, type GatewaySettings, type Settings, type Transport } from './granary-settings';

export interface MeasuredGranary extends Granary {
  /** host:port of each process that tells metrics; in one process none does unless it was asked for. */
  metricsAddresses: string[];
}

export interface OwnGranary extends MeasuredGranary {
  /** Stops it and starts it again on the same databases. Its url may be another one then. */
  restart(): Promise<void>;
}

export interface GranaryOptions {
  settings?: Settings;
  databaseUrls?: Partial<DatabaseUrls>;
}

/**
 * A Granary for this suite alone, on databases of its own: in a process beside those of other suites, or as a stack,
 * from what was built. In the pass on a stack it is one, whatever `transport` says.
 */
export async function startGranary(transport: Transport, options: GranaryOptions = {}): Promise<OwnGranary> {
  const request = {
    suite,
    transport: isOnStack ? 'stack' : transport,
    settings: options.settings,
    databaseUrls: await cloneDatabases(await askTestStack<Templates>('templates'), options.databaseUrls),
  };
  const { id, ...started } = await askTestStack<OwnGranary & { id: string }>('start', request);
  let { url } = started;
  return {
    ...started,
    get url() {
      return url;
    },
    restart: async () => {
      ({ url } = await askTestStack<{ url: string }>('restart', { id }));
    },
    stop: () => askTestStack('stop', { id }),
  };
}

/**
 * A Granary whose gateway has these settings, and tells its metrics. On a stack only the gateway is of this suite,
 * before the services of the stack that others have too: make an app for each test, and count nothing but what the
 * gateway does.
 */
export async function startGateway(transport: Transport, settings: GatewaySettings): Promise<MeasuredGranary> {
  if (!isOnStack) return startGranaryHere(transport, { metrics: true, settings: { gateway: settings } });
  const { id, ...started } = await askTestStack<MeasuredGranary & { id: string }>('startGateway', { suite, settings });
  return { ...started, stop: () => askTestStack('stop', { id }) };
}

/**
 * Starts a Granary in the process of this suite, from the sources, for suites that set its clock or collect its spans
 * or its metrics, which it tells where `metrics` is true. In the pass on a stack it starts a stack.
 */
export async function startGranaryHere(
  transport: Transport,
  options: GranaryOptions & { metrics?: boolean } = {},
): Promise<OwnGranary> {
  if (isOnStack || transport === 'stack') return startGranary('stack', options);
  const databaseUrls = await cloneDatabases(await askTestStack<Templates>('templates'), options.databaseUrls);
  // Loaded here, so that other suites do not load the services.
  const [{ startConstellation }, { createLogger }, { startTelemetry }] = await Promise.all([
    import('@granary/local/start/constellation'),
    import('@granary/shared/logger'),
    import('@granary/shared/telemetry/start'),
  ]);
  const log = createLogger('test', process.env['TEST_LOG_LEVEL'] ?? 'silent');
  // Services of this process that start later tell theirs there too.
  const telemetry = options.metrics
    ? await startTelemetry('granary-test', { METRICS_LISTEN: '127.0.0.1:0' }, log)
    : undefined;
  const directory = await mkdtemp(join(tmpdir(), 'granary-suite-'));
  const constellation = { ...optionsWith(options.settings), databaseUrls, directory, transport, log };
  const start = () => startConstellation({ ...constellation, host: '127.0.0.1', port: 0 });
  let running = await start();
  return {
    get url() {
      return running.url;
    },
    databaseUrls,
    metricsAddresses: telemetry?.metricsAddress === undefined ? [] : [telemetry.metricsAddress],
    restart: async () => {
      await running.stop();
      running = await start();
    },
    stop: async () => {
      await running.stop();
      await telemetry?.stop();
      await rm(directory, { recursive: true, force: true });
    },
  };
}
