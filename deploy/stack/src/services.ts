import path from 'node:path';
import { localUrl } from '@granary/gateway/http/address';
import type { KafkaSasl } from '@granary/shared/kafka/broker-options';
import type { Environment } from '@granary/shared/config';
import { nodeFlags } from '@granary/shared/service/v8';
import { trustEnvironments } from '@granary/shared/trust/environments';
import type { DatabaseService } from '@granary/local/start/constellation';
import { stackLauncher } from '@granary/local/start/settings';
import { accepts } from '@granary/local/ports';
import { startProgram, untilReady, type LineSink, type Program } from './programs/programs';
import type { Run } from './programs/runs';

export type ServiceName = DatabaseService | 'gateway';

/** Started wave by wave, so that each service starts after those that it calls. */
const waves: DatabaseService[][] = [['payments', 'data'], ['blobs'], ['finance', 'tasks']];

const readyTimeoutMs = 180_000;
const probeTimeoutMs = 2000;
/** Slightly longer than a service's own shutdown timeout. */
export const stopGraceMs = 32_000;

/** The settings of the services: all addresses, and the folder for what is stored outside the databases. */
export interface ServicesSettings {
  databaseUrls: Record<DatabaseService, string>;
  /**
   * Contains skills documents, the seeds of the wallets and of encrypted fields, and, without an object store, the
   * objects.
   */
  directory: string;
  host: string;
  /** Port of the gateway. */
  port: number;
  /** Ports of each service's gRPC server on 127.0.0.1, and of the blob transfers. */
  ports: Record<DatabaseService | 'bytes', number>;
  operatorKey: string;
  /** The signing secrets of the services are derived from it; no service receives it. */
  internalSecret: string;
  /** Absent: events are sent over Postgres. Names of topics and consumer groups begin with the prefix. */
  kafka?: { brokers: string[]; sasl: KafkaSasl; topicPrefix: string };
  /** Absent: objects are files. */
  objectStore?: { endpoint: string; accessKey: string; secretKey: string; bucket: string };
  /** Additional settings of all services, except those that the stack decides. */
  environment: Environment;
  /** Additional settings of single services, as environment variables. */
  settings?: Partial<Record<ServiceName, Record<string, string>>>;
}

/** Builds the environment of each service. */
export function environments(settings: ServicesSettings): Record<ServiceName, Record<string, string>> {
  const { directory, ports, databaseUrls, kafka, internalSecret } = settings;
  const trust = trustEnvironments(internalSecret);
  const addressOf = (service: DatabaseService | 'bytes'): string => `127.0.0.1:${ports[service]}`;
  const bus = busSettings(kafka);
  const common = (service: DatabaseService) => ({
    LISTEN: addressOf(service),
    DATABASE_URL: databaseUrls[service],
    ...trust[service],
    ...bus,
  });
  return {
    payments: { ...common('payments'), FINANCE_ADDRESS: addressOf('finance'), DATA_ADDRESS: addressOf('data') },
    data: {
      ...common('data'),
      SKILLS_DIRECTORY: path.join(directory, 'skills'),
      // Postgres runs on the same machine, also in containers.
      DATABASE_DIRECTORY: directory,
      ENCRYPTION_KEY_FILE: path.join(directory, 'encryption-seed'),
      ENCRYPTION_KEY_FILE_CREATE: 'true',
      PUBLIC_URL: settings.environment.PUBLIC_URL || localUrl(settings.host, settings.port),
    },
    blobs: {
      ...common('blobs'),
      ...objectSettings(settings),
      DATA_ADDRESS: addressOf('data'),
      HTTP_LISTEN: addressOf('bytes'),
    },
    finance: {
      ...common('finance'),
      DATA_ADDRESS: addressOf('data'),
      BLOBS_ADDRESS: addressOf('blobs'),
      PAYMENTS_ADDRESS: addressOf('payments'),
      KEY_FILE: path.join(directory, 'wallet-seed'),
      KEY_FILE_CREATE: 'true',
    },
    tasks: { ...common('tasks'), DATA_ADDRESS: addressOf('data') },
    gateway: {
      HOST: settings.host,
      PORT: String(settings.port),
      OPERATOR_KEY: settings.operatorKey,
      ...trust.gateway,
      DATA_ADDRESS: addressOf('data'),
      BLOBS_ADDRESS: addressOf('blobs'),
      FINANCE_ADDRESS: addressOf('finance'),
      PAYMENTS_ADDRESS: addressOf('payments'),
      TASKS_ADDRESS: addressOf('tasks'),
      BLOBS_HTTP_ADDRESS: addressOf('bytes'),
    },
  };
}

const busSettings = (kafka: ServicesSettings['kafka']): Record<string, string> =>
  kafka === undefined
    ? { BUS: 'postgres' }
    : {
        BUS: 'kafka',
        KAFKA_BROKERS: kafka.brokers.join(','),
        KAFKA_TOPIC_PREFIX: kafka.topicPrefix,
        KAFKA_SASL_MECHANISM: kafka.sasl.mechanism,
        KAFKA_SASL_USERNAME: kafka.sasl.username,
        KAFKA_SASL_PASSWORD: kafka.sasl.password,
      };

const objectSettings = ({ directory, objectStore }: ServicesSettings): Record<string, string> =>
  objectStore === undefined
    ? { OBJECT_STORE: 'files', OBJECTS_DIR: path.join(directory, 'objects') }
    : {
        OBJECT_STORE: 's3',
        S3_ENDPOINT: objectStore.endpoint,
        S3_PUBLIC_ENDPOINT: objectStore.endpoint,
        S3_ACCESS_KEY: objectStore.accessKey,
        S3_SECRET_KEY: objectStore.secretKey,
        S3_BUCKET: objectStore.bucket,
      };

export interface RunningServices {
  programs: Record<ServiceName, Program>;
  /** Stops the gateway first, then the others in reverse order of dependency. */
  stop(): Promise<void>;
}

/** Starts one process per service and resolves when the gateway reports ready. */
export async function startServices(run: Run, settings: ServicesSettings, sink?: LineSink): Promise<RunningServices> {
  const started: Program[] = [];
  const stop = async (): Promise<void> => {
    for (const program of [...started].reverse()) await program.stop(stopGraceMs);
  };
  const start = async (name: ServiceName): Promise<Program> => {
    const program = await startService(run, name, settings, sink);
    started.push(program);
    return program;
  };
  try {
    const programs = {} as Record<ServiceName, Program>;
    for (const wave of waves) {
      for (const name of wave) programs[name] = await start(name);
      for (const name of wave) await untilReady(programs[name], readyTimeoutMs, () => accepts(settings.ports[name]));
    }
    programs.gateway = await startGateway(run, settings, sink);
    started.push(programs.gateway);
    return { programs, stop };
  } catch (error) {
    await stop();
    throw error;
  }
}

/** Starts a gateway before services that run, at the port of the settings, and resolves when it reports ready. */
export async function startGateway(run: Run, settings: ServicesSettings, sink?: LineSink): Promise<Program> {
  const gateway = await startService(run, 'gateway', settings, sink);
  try {
    await untilReady(gateway, readyTimeoutMs, () => answersReady(settings));
    return gateway;
  } catch (error) {
    await gateway.stop(stopGraceMs);
    throw error;
  }
}

function startService(run: Run, name: ServiceName, settings: ServicesSettings, sink?: LineSink): Promise<Program> {
  const main = path.join(__dirname, '../../../services', name, 'dist/main.js');
  const env = {
    ...inherited(settings.environment),
    ...metricsListen(name, settings.environment),
    ...environments(settings)[name],
    ...settings.settings?.[name],
  };
  return startProgram(run, name, process.execPath, [...nodeFlags, main], { cwd: '/', env, sink });
}

/** All services inherit settings such as MAX_BLOB_BYTES, but not those of the stack or the operator key. */
function inherited(environment: Environment): NodeJS.ProcessEnv {
  const ofStack = /^(OPERATOR_KEY|DATA_DIR|STORE|DOCKER|BUS|OTEL_SERVICE_NAME)$/;
  return Object.fromEntries(
    Object.entries(environment).filter(([name]) => !ofStack.test(name) && !stackLauncher.decides(name)),
  );
}

/** METRICS_LISTEN is the address of the gateway's metrics; each other service uses the next port. */
function metricsListen(name: ServiceName, environment: Environment): Record<string, string> {
  const address = environment['METRICS_LISTEN'] ?? '';
  const [, host, port] = /^(.+):(\d+)$/.exec(address) ?? [];
  if (!host || port === '0') return {};
  const place = ['gateway', ...waves.flat()].indexOf(name);
  return { METRICS_LISTEN: `${host}:${Number(port) + place}` };
}

async function answersReady({ host, port }: ServicesSettings): Promise<boolean> {
  const probe = fetch(`${localUrl(host, port)}/readyz`, { signal: AbortSignal.timeout(probeTimeoutMs) });
  return (await probe.catch(() => undefined))?.status === 200;
}
