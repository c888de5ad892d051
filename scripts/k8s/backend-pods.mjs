import path from 'node:path';
import { createDatabases, storeKeys } from './backends.mjs';
import { scaledSeconds } from './eventually.mjs';
import { java, kafkaFolder, loadKafka } from './kafka-image.mjs';
import { findPostgresPod, loadPostgres, postgresResources } from './postgres-pod.mjs';
import { loadProgram } from './program-image.mjs';
import { secret, statefulSet } from './stateful-set.mjs';

export const kafkaSecret = { name: 'granary-kafka', username: 'granary', password: 'password-of-kafka' };
const readyTimeout = scaledSeconds(180);
const kafkaPort = 9092;
const minioPort = 9000;
const propertiesFolder = '/etc/kafka';

/**
 * Starts Postgres, Kafka, a broker with SCRAM that is its own controller, and MinIO, each in a pod with a volume.
 * Returns what the proofs use of Postgres, with the databases of the services.
 */
export async function startBackendPods(cluster, { directory, programs, root, say }) {
  const { prepareMinio } = await import('@granary/stack/minio/server');
  await loadPostgres(cluster, { programs, directory });
  await loadKafka(cluster, { installation: await findKafka(say), directory });
  await loadProgram(cluster, { program: await prepareMinio(say), directory });
  await cluster.apply(...postgresResources(), ...(await kafkaResources()), ...statefulSet('minio', minioPod));
  await awaitBackendPods(cluster);
  const postgres = await findPostgresPod(cluster);
  await createDatabases(cluster, postgres.url, path.join(root, 'deploy/postgres.sql'));
  return postgres;
}

export async function awaitBackendPods(cluster) {
  const sets = (await cluster.kubectl('get', 'statefulsets', '--output', 'name')).trim().split('\n');
  for (const set of sets) await cluster.kubectl('rollout', 'status', set, `--timeout=${readyTimeout}`);
}

async function findKafka(say) {
  const { beginRun } = await import('@granary/stack/programs/runs');
  const { prepareKafka } = await import('@granary/stack/kafka/broker');
  const run = await beginRun();
  try {
    return await prepareKafka(run, say);
  } finally {
    await run.end();
  }
}

async function kafkaResources() {
  const { brokerProperties, jvmOptions } = await import('@granary/stack/kafka/files');
  const { classPath } = await import('@granary/stack/kafka/install');
  const { scramRecord } = await import('@granary/stack/kafka/scram');
  const place = { port: kafkaPort, controllerPort: 9093, data: '/data/kafka', credentials: kafkaSecret };
  const properties = brokerProperties({ ...place, listenHost: '0.0.0.0', advertisedHost: 'kafka' });
  const file = `${propertiesFolder}/server.properties`;
  const run = (name, ...args) => ({
    name,
    image: 'registry.local/kafka:1',
    workingDir: kafkaFolder,
    command: [java],
    args: [...jvmOptions, ...classPath, ...args],
    volumeMounts: [{ name: 'properties', mountPath: propertiesFolder }],
  });
  const format = ['--cluster-id=Z3JhbmFyeS1pbi1wb2RzMQ', '--ignore-formatted', '-c', file];
  return [
    secret(kafkaSecret.name, { password: kafkaSecret.password }),
    secret('kafka-properties', { 'server.properties': properties }),
    ...statefulSet('kafka', {
      port: kafkaPort,
      before: [run('format', 'kafka.tools.StorageTool', 'format', ...format, '--add-scram', scramRecord(kafkaSecret))],
      container: { ...run('kafka', 'kafka.Kafka', file), readinessProbe: { tcpSocket: { port: kafkaPort } } },
      volumes: [{ name: 'properties', secret: { secretName: 'kafka-properties' } }],
    }),
  ];
}

const minioPod = {
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
