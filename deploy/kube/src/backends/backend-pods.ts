import type { Binaries } from '@granary/local/postgres/binaries';
import { prepareKafka } from '@granary/stack/kafka/broker';
import { brokerProperties, jvmOptions } from '@granary/stack/kafka/files';
import { classPath, type KafkaInstallation } from '@granary/stack/kafka/install';
import { scramRecord } from '@granary/stack/kafka/scram';
import { prepareMinio } from '@granary/stack/minio/server';
import { beginRun } from '@granary/stack/programs/runs';
import path from 'node:path';
import type { Cluster } from '../cluster/cluster';
import type { Resource } from '../cluster/kubernetes';
import { java, kafkaFolder, loadKafka } from '../images/kafka-image';
import { loadProgram } from '../images/program-image';
import type { Say } from '../say';
import { scaledSeconds } from '../waiting';
import { createDatabases, storeKeys } from './backends';
import type { Database } from './postgres';
import { findPostgresPod, loadPostgres, postgresResources } from './postgres-pod';
import { secret, statefulSet, type Container, type StatefulSetOptions } from './stateful-set';

const credentials = { username: 'granary', password: 'password-of-kafka' };
/** The Secret with the password of the services at Kafka, and their user name there. */
export const kafkaSecret = { name: 'granary-kafka', username: credentials.username };
const readyTimeout = scaledSeconds(180);
const kafkaPort = 9092;
const minioPort = 9000;
const propertiesFolder = '/etc/kafka';

export interface BackendPodsOptions {
  /** The folder for temporary files. */
  directory: string;
  /** The programs of Postgres. */
  programs: Binaries;
  /** The folder of the checkout. */
  root: string;
  say: Say;
}

/**
 * Starts Postgres, MinIO and Kafka (a broker with SCRAM that is its own controller), each in a pod with a volume.
 * Returns the Postgres for the proofs, which has the databases of the services.
 */
export async function startBackendPods(
  cluster: Cluster,
  { directory, programs, root, say }: BackendPodsOptions,
): Promise<Database> {
  await loadPostgres(cluster, { programs, directory });
  await loadKafka(cluster, { installation: await findKafka(say), directory });
  await loadProgram(cluster, { program: await prepareMinio(say), directory });
  await cluster.apply(...postgresResources(), ...kafkaResources(), ...statefulSet('minio', minioPod));
  await awaitBackendPods(cluster);
  const postgres = await findPostgresPod(cluster);
  await createDatabases(cluster, postgres.url, path.join(root, 'deploy/postgres.sql'));
  return postgres;
}

export async function awaitBackendPods(cluster: Cluster): Promise<void> {
  const sets = (await cluster.kubectl('get', 'statefulsets', '--output', 'name')).trim().split('\n');
  for (const set of sets) await cluster.kubectl('rollout', 'status', set, `--timeout=${readyTimeout}`);
}

async function findKafka(say: Say): Promise<KafkaInstallation> {
  const run = await beginRun();
  try {
    return await prepareKafka(run, say);
  } finally {
    await run.end();
  }
}

function kafkaResources(): Resource[] {
  const place = { port: kafkaPort, controllerPort: 9093, data: '/data/kafka', credentials };
  const properties = brokerProperties({ ...place, listenHost: '0.0.0.0', advertisedHost: 'kafka' });
  const file = `${propertiesFolder}/server.properties`;
  const run = (name: string, ...args: string[]): Container => ({
    name,
    image: 'registry.local/kafka:1',
    workingDir: kafkaFolder,
    command: [java],
    args: [...jvmOptions, ...classPath, ...args],
    volumeMounts: [{ name: 'properties', mountPath: propertiesFolder }],
  });
  const format = ['--cluster-id=Z3JhbmFyeS1pbi1wb2RzMQ', '--ignore-formatted', '-c', file];
  return [
    secret(kafkaSecret.name, { password: credentials.password }),
    secret('kafka-properties', { 'server.properties': properties }),
    ...statefulSet('kafka', {
      port: kafkaPort,
      before: [run('format', 'kafka.tools.StorageTool', 'format', ...format, '--add-scram', scramRecord(credentials))],
      container: { ...run('kafka', 'kafka.Kafka', file), readinessProbe: { tcpSocket: { port: kafkaPort } } },
      volumes: [{ name: 'properties', secret: { secretName: 'kafka-properties' } }],
    }),
  ];
}

const minioPod: StatefulSetOptions = {
  port: minioPort,
  container: {
    name: 'minio',
    image: 'registry.local/minio:1',
    args: ['server', '/data', '--address', `:${minioPort}`, '--quiet'],
    env: Object.entries({
      MINIO_ROOT_USER: storeKeys.accessKey,
      MINIO_ROOT_PASSWORD: storeKeys.secretKey,
      HOME: '/tmp',
    }).map(([name, value]) => ({ name, value })),
    readinessProbe: { httpGet: { path: '/minio/health/ready', port: minioPort } },
  },
};
