import { randomBytes } from 'node:crypto';
import { readdirSync, readFileSync, statSync, writeFileSync } from 'node:fs';
import path from 'node:path';
import { awaitBackendPods, kafkaSecret, startBackendPods } from '../backends/backend-pods';
import { databaseHost } from '../backends/postgres-pod';
import type { Cluster } from '../cluster/cluster';
import { Proof } from '../proof/proof';
import { agrees } from './agreement';
import type { StepParts } from './step';

const kills = 12;
/** The backends whose pods are killed; the other pods that are killed are random. */
const backendVictims = ['kafka', databaseHost, 'minio', 'kafka', databaseHost, 'minio'];
const blobBytes = 20_000_000;

/**
 * Starts another cluster, with Postgres, Kafka and MinIO in pods too, and proves that the chart with events by Kafka
 * loses and doubles nothing while pods are killed, those of the backends among them.
 */
export async function proveInPods(
  { cluster, chart, values, image, callersOf }: Proof,
  parts: Pick<StepParts, 'root' | 'directory' | 'backends' | 'replaceCluster' | 'say'>,
): Promise<string> {
  const { backends, directory, replaceCluster, root } = parts;
  await replaceCluster();
  const primary = await startBackendPods(cluster, { ...parts, programs: backends.primary.programs });
  const options = { chart, values: [...values, ...podValues], image, callersOf, backends: { primary } };
  const proof = new Proof(cluster, options);
  const installed = await proof.install();
  await proof.smoke();
  const blob = await uploadBlob(proof, directory);
  const traffic = await proof.beside({ kills: () => killPods(proof) }, { mayFail: true });
  await expectBlob(proof, blob);
  const kept = await proof.nothingLost();
  const agreed = await agrees(proof, { root });
  return `${installed}; ${traffic}; ${kept}; ${agreed}; ${eventBytes(cluster)} bytes of events in Kafka`;
}

const peers = (name: string): string => JSON.stringify([{ podSelector: { matchLabels: { app: name } } }]);
const podValues = [
  ...Object.entries({
    'postgres.host': databaseHost,
    'kafka.enabled': 'true',
    'kafka.brokers': '{kafka:9092}',
    'kafka.tls.enabled': 'false',
    'kafka.sasl.username': kafkaSecret.username,
    'kafka.sasl.existingSecret': kafkaSecret.name,
    'objectStorage.endpoint': 'http://minio:9000',
  }).flatMap(([name, value]) => ['--set', `${name}=${value}`]),
  '--set-json',
  `networkPolicy.postgresTo=${peers(databaseHost)}`,
  '--set-json',
  `networkPolicy.kafkaTo=${peers('kafka')}`,
  '--set-json',
  `networkPolicy.objectStorageTo=${peers('minio')}`,
];

/** Names the pod of a backend for every other pod that is killed. */
function backendVictim(killed: number): string | undefined {
  const name = killed % 2 === 0 ? backendVictims[killed / 2] : undefined;
  return name && `pod/${name}-0`;
}

async function killPods(proof: Proof): Promise<void> {
  await proof.kills(kills, backendVictim);
  await awaitBackendPods(proof.cluster);
}

interface UploadedBlob {
  file: string;
  url: string;
}

async function uploadBlob(proof: Proof, directory: string): Promise<UploadedBlob> {
  const file = path.join(directory, 'blob');
  writeFileSync(file, randomBytes(blobBytes));
  const blobs = `${proof.gateway.url}/api/apps/${proof.app.id}/blobs/files`;
  const content = ['-H', 'content-type: application/octet-stream', '--data-binary', `@${file}`];
  const { blob_id: id } = JSON.parse(await curl(proof, ...content, blobs)) as { blob_id: string };
  return { file, url: `${blobs}/${id}` };
}

async function expectBlob(proof: Proof, { file, url }: UploadedBlob): Promise<void> {
  const received = `${file}-received`;
  await curl(proof, '--output', received, url);
  if (!readFileSync(received).equals(readFileSync(file))) throw new Error('another file came back than was uploaded');
}

const curl = ({ cluster, app }: Proof, ...args: string[]): Promise<string> =>
  cluster.run('curl', '-sS', '--fail-with-body', '-H', `x-app-key: ${app.key}`, ...args);

/** The size of the topics, which are on a volume of this machine. */
function eventBytes(cluster: Cluster): number {
  const volumes = path.join(cluster.state, 'volumes');
  const logs = readdirSync(volumes, { recursive: true, encoding: 'utf8' }).filter((file) =>
    /\/kafka\/granary\.[^/]+\/\d+\.log$/.test(file),
  );
  const bytes = logs.reduce((sum, file) => sum + statSync(path.join(volumes, file)).size, 0);
  if (bytes === 0) throw new Error('no event has gone through Kafka');
  return bytes;
}
