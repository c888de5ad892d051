import path from 'node:path';
import { openKafka } from '@granary/shared/kafka/client';
import type { BrokerOptions } from '@granary/shared/kafka/broker-options';
import { kafkaTopics, topicPartitions } from '@granary/shared/bus/topics';
import { StartError } from '@granary/shared/start-error';
import type { Environment } from '@granary/shared/config';
import { localUrl } from '@granary/gateway/http/address';
import { newSecret } from '@granary/shared/ids';
import { stopAll, type Running } from '@granary/shared/service/lifecycle';
import { createLogger } from '@granary/shared/logger';
import { databaseServices } from '@granary/local/start/constellation';
import { demoApp, type DemoApp } from '@granary/local/start/demo-app';
import { exists } from '@granary/local/postgres/system-user';
import { choosePorts, requireFree } from '@granary/local/ports';
import { noteRunning } from '@granary/local/processes/running';
import { keptSecret } from '@granary/local/start/secrets';
import { startBackends, type Part } from './backends';
import { startContainers } from './containers';
import type { LineSink, Program } from './programs/programs';
import { beginRun } from './programs/runs';
import { startServices, type ServiceName, type ServicesSettings } from './services';

/** The bucket of the stack's objects. */
export const bucket = 'granary';
const topicPrefix = 'granary';

export interface StackOptions {
  /** Absolute path of a folder that the Postgres user can enter, see `resolveDataDir`. */
  dataDir: string;
  host: string;
  /** Port of the gateway; 0: any free one. */
  port: number;
  /** Default: generated and stored in the data directory. */
  operatorKey?: string | undefined;
  bus: 'postgres' | 'kafka';
  store: 'files' | 'minio';
  /** Runs Postgres, Kafka and MinIO in containers, by `deploy/compose.yaml`. */
  docker?: boolean;
  /** Settings of the services, without those that the stack decides, see start/settings.ts. */
  environment: Environment;
  /** Prints an occasional line for the user. */
  say: (line: string) => void;
  /** Receives the output of all programs. */
  sink?: LineSink;
  /** Aborts an installation in progress; the start then throws its reason. */
  signal?: AbortSignal;
}

export interface Stack extends Running {
  url: string;
  operatorKey: string;
  app: DemoApp;
  parts: Part[];
  services: Record<ServiceName, Program>;
  /** Rejects with a sentence and the latest output lines when one of the programs ends by itself. */
  failed: Promise<never>;
}

/**
 * Starts the production topology on one machine: Postgres, Kafka and MinIO, and one process per service. Throws a
 * StartError for problems that the user can fix.
 */
export async function startStack(options: StackOptions): Promise<Stack> {
  const { dataDir, host, sink } = options;
  let onFailure: (error: Error) => void = () => {};
  const failed = new Promise<never>((_, reject) => {
    onFailure = reject;
  });
  failed.catch(() => {});
  const stops: Array<() => Promise<void>> = [];
  try {
    // Ends the programs of killed runs first: they may hold ports and folders that are needed now.
    const run = await beginRun();
    stops.push(() => run.end());
    const port = await gatewayPort(options);
    const start = options.docker ? startContainers : startBackends;
    if (!options.docker) await checkStore(dataDir, options.store);
    const backends = await start({ ...options, run, onFailure });
    stops.push(() => backends.stop());
    if (backends.kafka) await createTopics(backends.kafka, topicPrefix);
    const settings: ServicesSettings = {
      host,
      port,
      directory: dataDir,
      databaseUrls: backends.databaseUrls,
      ports: await servicePorts(),
      operatorKey: options.operatorKey ?? (await keptSecret(dataDir, 'operator-key', 'op_')),
      internalSecret: newSecret('internal_'),
      environment: options.environment,
      ...(backends.kafka ? { kafka: { ...backends.kafka, topicPrefix } } : {}),
      ...(backends.objectStore ? { objectStore: { ...backends.objectStore, bucket } } : {}),
    };
    const services = await startServices(run, settings, sink);
    stops.push(() => services.stop());
    for (const program of Object.values(services.programs)) program.whenFailed(onFailure);
    const url = localUrl(host, port);
    const { operatorKey, ports } = settings;
    const app = await demoApp(url, operatorKey, dataDir);
    stops.push(await noteRunning(dataDir, url));
    const parts = [
      ...backends.parts,
      ...databaseServices.map((name) => ({ name, port: ports[name], pid: services.programs[name].pid })),
      { name: 'gateway', port, pid: services.programs.gateway.pid },
    ];
    return { url, operatorKey, app, parts, services: services.programs, failed, stop: () => stopAll(stops) };
  } catch (error) {
    await stopAll(stops).catch(() => {});
    throw error;
  }
}

/** Creates the topics, a deployment step that the services require. */
export async function createTopics(place: BrokerOptions, prefix: string): Promise<void> {
  const kafka = openKafka({ ...place, clientId: 'granary-stack', log: createLogger('stack', 'error') });
  await kafka.createTopics(kafkaTopics(prefix), topicPartitions);
}

/** Blobs in one store are not in the other, and would appear lost. */
async function checkStore(dataDir: string, store: StackOptions['store']): Promise<void> {
  const other = store === 'files' ? 'minio' : 'objects';
  if (!(await exists(path.join(dataDir, other)))) return;
  const option = store === 'files' ? 'minio' : 'files';
  throw new StartError(
    `The blobs of ${dataDir} are in ${other}/: start with --store ${option}, or on another directory.`,
  );
}

async function gatewayPort({ host, port }: StackOptions): Promise<number> {
  const listenPort = port === 0 ? ((await choosePorts(1))[0] ?? 0) : port;
  await requireFree(host, listenPort);
  return listenPort;
}

/** Chooses a port for each service, see `choosePorts`. */
export async function servicePorts(): Promise<ServicesSettings['ports']> {
  const names = [...databaseServices, 'bytes'] as const;
  const ports = await choosePorts(names.length);
  return Object.fromEntries(names.map((name, i) => [name, ports[i]])) as ServicesSettings['ports'];
}
