import { randomUUID } from 'node:crypto';
import { builtServices, kafkaForTests, minioForTests } from '@granary/testing/stack';
import { databaseServices, type ConstellationOptions } from '@granary/local/start/constellation';
import { choosePorts } from '@granary/local/ports';
import type { LineSink } from '@granary/local/stack/programs';
import { beginRun } from '@granary/local/stack/runs';
import { startServices, type ServiceName, type ServicesSettings } from '@granary/local/stack/services';
import { createTopics, servicePorts } from '@granary/local/stack/stack';

export interface StackGranary {
  url: string;
  /** host:port of each process's metrics. */
  metricsAddresses: string[];
  /** Ends all processes in order and starts them again on the same ports, databases, topics and bucket. */
  restart(): Promise<void>;
  stop(): Promise<void>;
}

type Options = Pick<ConstellationOptions, 'databaseUrls' | 'directory' | 'operatorKey' | 'internalSecret' | 'settings'>;

const services: ServiceName[] = [...databaseServices, 'gateway'];

/** With TEST_LOG_LEVEL what the services write is shown; without it they keep what their end would need to be explained. */
const logLevel = process.env['TEST_LOG_LEVEL'];
const show: LineSink | undefined = logLevel
  ? (name, line) => void process.stderr.write(`${name.padEnd(8)} | ${line}\n`)
  : undefined;

/**
 * Granary as production has it: a process for each service, which sign their calls, on the run's Kafka and MinIO with
 * topics and a bucket that nobody else has. It runs what was built from the sources.
 */
export async function startStackGranary(options: Options): Promise<StackGranary> {
  const [kafka, minio] = await Promise.all([kafkaForTests(), minioForTests(), builtServices()]);
  const name = `test-${randomUUID()}`;
  const [ports, metricsPorts, [port = 0]] = await Promise.all([
    servicePorts(),
    choosePorts(services.length),
    choosePorts(1),
    createTopics(kafka, name),
  ]);
  const metricsAddresses = metricsPorts.map((each) => `127.0.0.1:${each}`);
  const ofService = (service: ServiceName, i: number) => ({
    LOG_LEVEL: logLevel ?? 'warn',
    METRICS_LISTEN: metricsAddresses[i]!,
    ...options.settings?.[service],
  });
  const { endpoint, accessKey, secretKey } = minio;
  const settings: ServicesSettings = {
    ...options,
    host: '127.0.0.1',
    port,
    ports,
    environment: process.env,
    kafka: { ...kafka, topicPrefix: name },
    objectStore: { endpoint, accessKey, secretKey, bucket: name },
    settings: Object.fromEntries(services.map((service, i) => [service, ofService(service, i)])),
  };
  const run = await beginRun();
  const start = () => startServices(run, settings, show);
  let running = await start().catch(async (error: unknown) => {
    await run.end();
    throw error;
  });
  return {
    url: `http://127.0.0.1:${port}`,
    metricsAddresses,
    restart: async () => {
      await running.stop();
      running = await start();
    },
    stop: async () => {
      await running.stop();
      await run.end();
    },
  };
}
