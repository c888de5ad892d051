import path from 'node:path';
import { localUrl } from '@granary/gateway/http/address';
import type { KafkaSasl } from '@granary/shared/kafka/client';
import type { Environment } from '@granary/shared/config';
import { nodeFlags } from '@granary/shared/service/v8';
import { trustEnvironments } from '@granary/shared/trust/environments';
import type { DatabaseService } from '../start/constellation';
import { stackLauncher } from '../start/settings';
import { accepts } from './ports';
import { startProgram, untilReady, type LineSink, type Program } from './programs';
import type { Run } from './runs';

export type ServiceName = DatabaseService | 'gateway';

/** Started one after the other, so that nobody calls a service that is not there yet. */
const waves: DatabaseService[][] = [['payments', 'data'], ['blobs'], ['finance', 'tasks']];

const readyTimeoutMs = 180_000;
const probeTimeoutMs = 2000;
/** A little more than a service gives itself. */
const stopGraceMs = 32_000;

/** What the services are given: where everything is, and where to keep what lies beside the databases. */
export interface ServicesSettings {
  databaseUrls: Record<DatabaseService, string>;
  /** Holds skills documents, the seed of the wallets and, without an object store, the objects. */
  directory: string;
  host: string;
  /** Of the gateway. */
  port: number;
  /** Of each service's gRPC server on 127.0.0.1, and of the byte hop of blobs. */
  ports: Record<DatabaseService | 'bytes', number>;
  operatorKey: string;
  /** From which the secrets are derived with which the services sign their calls; none of them gets this one. */
  internalSecret: string;
  /** Absent: events go over Postgres. The prefix begins the names of topics and groups. */
  kafka?: { brokers: string[]; sasl: KafkaSasl; topicPrefix: string };
  /** Absent: objects are files. */
  objectStore?: { endpoint: string; accessKey: string; secretKey: string; bucket: string };
  /** What every service gets beside these, but for what the stack decides. */
  environment: Environment;
  /** Settings of single services beyond these, by the names of their environment. */
  settings?: Partial<Record<ServiceName, Record<string, string>>>;
}

/** The environment of each service: the one place that knows how they are told what they need. */
export function environments(settings: ServicesSettings): Record<ServiceName, Record<string, string>> {
  const { directory, ports, databaseUrls, kafka, objectStore, internalSecret } = settings;
  const trust = trustEnvironments(internalSecret);
  const at = (service: DatabaseService | 'bytes'): string => `127.0.0.1:${ports[service]}`;
  const bus: Record<string, string> =
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
  const objects: Record<string, string> =
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
  const common = (service: DatabaseService) => ({
    LISTEN: at(service),
    DATABASE_URL: databaseUrls[service],
    ...trust[service],
    ...bus,
  });
  return {
    payments: common('payments'),
    data: {
      ...common('data'),
      SKILLS_DIRECTORY: path.join(directory, 'skills'),
      // Postgres is beside it, in containers on the same machine too.
      DATABASE_DIRECTORY: directory,
      PUBLIC_URL: settings.environment.PUBLIC_URL || localUrl(settings.host, settings.port),
    },
    blobs: {
      ...common('blobs'),
      ...objects,
      DATA_ADDRESS: at('data'),
      HTTP_LISTEN: at('bytes'),
    },
    finance: {
      ...common('finance'),
      DATA_ADDRESS: at('data'),
      BLOBS_ADDRESS: at('blobs'),
      PAYMENTS_ADDRESS: at('payments'),
      KEY_FILE: path.join(directory, 'wallet-seed'),
    },
    tasks: { ...common('tasks'), DATA_ADDRESS: at('data') },
    gateway: {
      HOST: settings.host,
      PORT: String(settings.port),
      OPERATOR_KEY: settings.operatorKey,
      ...trust.gateway,
      DATA_ADDRESS: at('data'),
      BLOBS_ADDRESS: at('blobs'),
      FINANCE_ADDRESS: at('finance'),
      PAYMENTS_ADDRESS: at('payments'),
      TASKS_ADDRESS: at('tasks'),
      BLOBS_HTTP_ADDRESS: at('bytes'),
    },
  };
}

export interface RunningServices {
  programs: Record<ServiceName, Program>;
  /** The gateway first, then the others against the order in which they depend on each other. */
  stop(): Promise<void>;
}

/** Starts one process per service and resolves when the gateway says that requests may come. */
export async function startServices(run: Run, settings: ServicesSettings, sink?: LineSink): Promise<RunningServices> {
  const environment = environments(settings);
  const given = inherited(settings.environment);
  const started: Program[] = [];
  const stop = async (): Promise<void> => {
    for (const program of [...started].reverse()) await program.stop(stopGraceMs);
  };
  const start = async (name: ServiceName): Promise<Program> => {
    const main = path.join(__dirname, '../../..', name, 'dist/main.js');
    const env = {
      ...given,
      ...metricsListen(name, settings.environment),
      ...environment[name],
      ...settings.settings?.[name],
    };
    const program = await startProgram(run, name, process.execPath, [...nodeFlags, main], { cwd: '/', env, sink });
    started.push(program);
    return program;
  };
  try {
    const programs = {} as Record<ServiceName, Program>;
    for (const wave of waves) {
      for (const name of wave) programs[name] = await start(name);
      for (const name of wave) await untilReady(programs[name], readyTimeoutMs, () => accepts(settings.ports[name]));
    }
    programs.gateway = await start('gateway');
    await untilReady(programs.gateway, readyTimeoutMs, () => answersReady(settings));
    return { programs, stop };
  } catch (error) {
    await stop();
    throw error;
  }
}

/** Settings such as MAX_BLOB_BYTES reach all services; what the stack decides, and the operator's key, do not. */
function inherited(environment: Environment): NodeJS.ProcessEnv {
  const ofStack = /^(OPERATOR_KEY|DATA_DIR|STORE|DOCKER|BUS|OTEL_SERVICE_NAME)$/;
  return Object.fromEntries(
    Object.entries(environment).filter(([name]) => !ofStack.test(name) && !stackLauncher.decides(name)),
  );
}

/** METRICS_LISTEN is the gateway's, and each other service has the next port. */
function metricsListen(name: ServiceName, environment: Environment): Record<string, string> {
  const given = environment['METRICS_LISTEN'] ?? '';
  const [, host, port] = /^(.+):(\d+)$/.exec(given) ?? [];
  if (!host || port === '0') return {};
  const place = ['gateway', ...waves.flat()].indexOf(name);
  return { METRICS_LISTEN: `${host}:${Number(port) + place}` };
}

async function answersReady({ host, port }: ServicesSettings): Promise<boolean> {
  const probe = fetch(`${localUrl(host, port)}/readyz`, { signal: AbortSignal.timeout(probeTimeoutMs) });
  return (await probe.catch(() => undefined))?.status === 200;
}
