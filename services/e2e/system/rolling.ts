import { randomUUID } from 'node:crypto';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import path from 'node:path';
import { openKafka } from '@granary/shared/kafka/client';
import { kafkaTopics, topicPartitions } from '@granary/shared/bus/topics';
import { createLogger } from '@granary/shared/logger';
import { testDatabase } from '@granary/testing/database';
import { builtServices, kafkaForTests, minioForTests } from '@granary/testing/stack';
import { limitMs } from '@granary/testing/speed';
import { databaseServices } from '@granary/local/start/constellation';
import { accepts, choosePorts } from '@granary/local/ports';
import { startProgram, untilReady, type LineSink, type Program } from '@granary/stack/programs/programs';
import { beginRun } from '@granary/stack/programs/runs';
import { environments, type ServiceName, type ServicesSettings } from '@granary/stack/services';
import { runTool } from '@granary/stack/tools/tools';
import { operatorKey } from '../support/granary';

/** In the order in which they are replaced. */
export const services: readonly ServiceName[] = [...databaseServices, 'gateway'];

/** Everything in two copies, each a process of its own, on a Postgres, a Kafka and a MinIO that they share. */
export interface TwoOfEach {
  /** Of the gateways. */
  urls: readonly string[];
  /** Brings the schemas to those of the sources, by their command `migrate`. */
  migrate(): Promise<void>;
  /**
   * Ends a copy by SIGTERM, waits for its end, and starts another in its place: from the sources, or as it was started
   * first.
   */
  replace(service: ServiceName, copy: number, by: 'sources' | 'first'): Promise<void>;
  /** The metrics of a copy, as text. */
  metrics(service: ServiceName, copy: number): Promise<string>;
  stop(): Promise<void>;
}

type Ports = Record<ServiceName | 'bytes', number>;

const copies = [0, 1] as const;
const startTimeoutMs = limitMs(60_000);
const stopTimeoutMs = limitMs(35_000);
const checkout = path.join(__dirname, '../../..');

/** With TEST_LOG_LEVEL what the services write is shown. */
const logLevel = process.env['TEST_LOG_LEVEL'];
const show: LineSink | undefined = logLevel
  ? (name, line) => void process.stderr.write(`${name.padEnd(10)} | ${line}\n`)
  : undefined;

/** What callers are told: where both copies of everything are. */
function addressesOf(ports: readonly Ports[]): Record<string, string> {
  const at = (service: keyof Ports) => ports.map((each) => `127.0.0.1:${each[service]}`).join(',');
  const grpc = databaseServices.map((service) => [`${service.toUpperCase()}_ADDRESS`, at(service)] as const);
  return { ...Object.fromEntries(grpc), BLOBS_HTTP_ADDRESS: at('bytes') };
}

/** Starts all of them at once, on empty databases: from the sources, or from the folder of a built release. */
export async function startTwoOfEach(release?: string): Promise<TwoOfEach> {
  const [kafka, minio] = await Promise.all([kafkaForTests(), minioForTests(), builtServices()]);
  const name = `rolling-${randomUUID()}`;
  const log = createLogger('rolling', 'error');
  await openKafka({ ...kafka, clientId: name, log }).createTopics(kafkaTopics(name), topicPartitions);
  const directory = await mkdtemp(path.join(tmpdir(), 'granary-rolling-'));
  const urls = await Promise.all(databaseServices.map(async (each) => [each, (await testDatabase()).url] as const));
  const ports = await Promise.all(copies.map(choosePortsOfAll));
  const metricsPorts = await Promise.all(copies.map(choosePortsOfAll));
  const addresses = addressesOf(ports);
  const common = {
    directory,
    operatorKey,
    environment: {},
    host: '127.0.0.1',
    internalSecret: 'internal-secret-of-the-tests-0123456789',
    databaseUrls: Object.fromEntries(urls) as ServicesSettings['databaseUrls'],
    kafka: { ...kafka, topicPrefix: name },
    objectStore: { endpoint: minio.endpoint, accessKey: minio.accessKey, secretKey: minio.secretKey, bucket: name },
  };
  const environmentOf = (service: ServiceName, copy: number): NodeJS.ProcessEnv => ({
    ...process.env,
    ...environments({ ...common, port: ports[copy]!.gateway, ports: ports[copy]! })[service],
    ...addresses,
    // Both copies of all services share one small Postgres here.
    DATABASE_POOL_SIZE: '4',
    MIGRATIONS: 'wait',
    X402_PAY_TO: 'simulated',
    METRICS_LISTEN: `127.0.0.1:${metricsPorts[copy]![service]}`,
    // What a balancer needs to see that a gateway goes.
    DRAIN_DELAY_MS: String(Math.min(limitMs(service === 'gateway' ? 1_000 : 200), 60_000)),
    // On a slow machine requests may take longer, beside processes that start.
    REQUEST_TIMEOUT_MS: String(Math.min(limitMs(10_000), 600_000)),
    QUEUE_TIMEOUT_MS: String(Math.min(limitMs(1_000), 60_000)),
    LOG_LEVEL: logLevel ?? 'warn',
  });
  const run = await beginRun();
  const programs = new Map<string, Program>();
  const start = async (service: ServiceName, copy: number, args: string[]): Promise<void> => {
    const env = environmentOf(service, copy);
    const program = await startProgram(run, `${service} ${copy}`, process.execPath, args, {
      cwd: '/',
      env,
      sink: show,
    });
    programs.set(`${service} ${copy}`, program);
    await untilReady(program, startTimeoutMs, () => accepts(ports[copy]![service]));
  };
  const stop = async () => {
    await Promise.all([...programs.values()].map((program) => program.stop(stopTimeoutMs)));
    await run.end();
    await rm(directory, { recursive: true, force: true });
  };
  const migrate = (argsOf: ArgumentsOf) =>
    Promise.all(
      databaseServices.map((service) => {
        const options = { cwd: '/', env: environmentOf(service, 0), signal: undefined };
        return runTool(process.execPath, [...argsOf(service), 'migrate'], options);
      }),
    );
  const argumentsOf = { sources: builtIn(checkout), first: builtIn(release ?? checkout) };
  try {
    await migrate(argumentsOf.first);
    await Promise.all(
      services.flatMap((service) => copies.map((copy) => start(service, copy, argumentsOf.first(service)))),
    );
  } catch (error) {
    await stop();
    throw error;
  }
  return {
    urls: ports.map(({ gateway }) => `http://127.0.0.1:${gateway}`),
    migrate: async () => void (await migrate(argumentsOf.sources)),
    replace: async (service, copy, by) => {
      const old = programs.get(`${service} ${copy}`)!;
      old.kill('SIGTERM');
      const end = await old.ended;
      if (!end.includes('exit code 0')) throw new Error(`${end}. Its last lines:\n${old.lastLines()}`);
      await start(service, copy, argumentsOf[by](service));
    },
    metrics: async (service, copy) => (await fetch(`http://127.0.0.1:${metricsPorts[copy]![service]}/metrics`)).text(),
    stop,
  };
}

/** The arguments of Node for a service. */
type ArgumentsOf = (service: ServiceName) => string[];

const builtIn =
  (folder: string): ArgumentsOf =>
  (service) => [path.join(folder, 'services', service, 'dist/main.js')];

async function choosePortsOfAll(): Promise<Ports> {
  const names = [...services, 'bytes'] as const;
  const ports = await choosePorts(names.length);
  return Object.fromEntries(names.map((each, at) => [each, ports[at]!])) as Ports;
}
