import { randomUUID } from 'node:crypto';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import type { TestKafka, TestMinio } from '@granary/testing/stack';
import { databaseServices } from '@granary/local/start/constellation';
import { choosePorts } from '@granary/local/ports';
import type { LineSink } from '@granary/stack/programs/programs';
import type { Run } from '@granary/stack/programs/runs';
import {
  startGateway,
  startServices,
  stopGraceMs,
  type RunningServices,
  type ServiceName,
  type ServicesSettings,
} from '@granary/stack/services';
import { createTopics, servicePorts } from '@granary/stack/stack';
import type { DatabaseUrls } from './granary-databases';
import { optionsWith, type GatewaySettings, type Settings } from './granary-settings';
import type { MeasuredGranary, OwnGranary } from './own-granary';

export interface StackGranary extends OwnGranary {
  /** Resolves with a sentence when a process has ended that nobody has stopped. */
  crashed: Promise<string>;
  /** Starts one more gateway before its services, with settings of its own. */
  startGateway(settings: GatewaySettings): Promise<MeasuredGranary>;
}

/** What a stack takes from the run. */
export interface StackParts {
  run: Run;
  kafka: TestKafka;
  minio: TestMinio;
}

const services: ServiceName[] = [...databaseServices, 'gateway'];

/**
 * With TEST_LOG_LEVEL what the services write is shown; without it they keep what their end would need to be explained.
 */
const logLevel = process.env['TEST_LOG_LEVEL'];
const show: LineSink | undefined = logLevel
  ? (name, line) => void process.stderr.write(`${name.padEnd(8)} | ${line}\n`)
  : undefined;

/** A stack on these databases and this folder, with free ports, and with topics and a bucket that nobody else has. */
async function chooseSettings(
  { kafka, minio: { endpoint, accessKey, secretKey } }: StackParts,
  databaseUrls: DatabaseUrls,
  directory: string,
  ofSuite: Settings | undefined,
): Promise<{ settings: ServicesSettings; metricsAddresses: string[] }> {
  const name = `test-${randomUUID()}`;
  const [ports, metricsPorts, [port = 0]] = await Promise.all([
    servicePorts(),
    choosePorts(services.length),
    choosePorts(1),
    createTopics(kafka, name),
  ]);
  const metricsAddresses = metricsPorts.map((each) => `127.0.0.1:${each}`);
  const { settings, ...common } = optionsWith(ofSuite);
  const ofService = (service: ServiceName, i: number) => ({
    LOG_LEVEL: logLevel ?? 'warn',
    METRICS_LISTEN: metricsAddresses[i]!,
    ...settings[service],
  });
  return {
    metricsAddresses,
    settings: {
      ...common,
      databaseUrls,
      directory,
      host: '127.0.0.1',
      port,
      ports,
      environment: process.env,
      kafka: { ...kafka, topicPrefix: name },
      objectStore: { endpoint, accessKey, secretKey, bucket: name },
      settings: Object.fromEntries(services.map((service, i) => [service, ofService(service, i)])),
    },
  };
}

/**
 * Starts Granary as production has it: a process for each service, which sign their calls, on the run's Kafka and
 * MinIO. It runs what was built from the sources, and restarts on the same ports, databases, topics and bucket.
 * `beforeEnd` gets its addresses of metrics before its processes end, at each restart too.
 */
export async function startStackGranary(
  parts: StackParts,
  databaseUrls: DatabaseUrls,
  ofSuite: Settings | undefined,
  beforeEnd: (metricsAddresses: string[]) => Promise<void>,
): Promise<StackGranary> {
  const directory = await mkdtemp(path.join(tmpdir(), 'granary-suite-'));
  const { settings, metricsAddresses } = await chooseSettings(parts, databaseUrls, directory, ofSuite);
  let crash: (sentence: string) => void = () => undefined;
  const crashed = new Promise<string>((resolve) => (crash = resolve));
  const start = async (): Promise<RunningServices> => {
    const running = await startServices(parts.run, settings, show);
    for (const program of Object.values(running.programs)) program.whenFailed(({ message }) => crash(message));
    return running;
  };
  const end = async (running: RunningServices): Promise<void> => {
    await beforeEnd(metricsAddresses);
    await running.stop();
  };
  let running = await start();
  return {
    url: `http://127.0.0.1:${settings.port}`,
    databaseUrls,
    metricsAddresses,
    crashed,
    startGateway: async (ofGateway) => {
      const [port, metricsPort] = (await choosePorts(2)) as [number, number];
      const metrics = `127.0.0.1:${metricsPort}`;
      const gateway = {
        ...settings.settings?.gateway,
        ...optionsWith({ gateway: ofGateway }).settings.gateway,
        METRICS_LISTEN: metrics,
      };
      const program = await startGateway(parts.run, { ...settings, port, settings: { gateway } }, show);
      return {
        url: `http://127.0.0.1:${port}`,
        databaseUrls,
        metricsAddresses: [metrics],
        stop: async () => {
          await beforeEnd([metrics]);
          await program.stop(stopGraceMs);
        },
      };
    },
    restart: async () => {
      await end(running);
      running = await start();
    },
    stop: async () => {
      await end(running);
      await rm(directory, { recursive: true, force: true });
    },
  };
}
