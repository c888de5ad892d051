import { areChartToolsInstalled, prepareChartTools } from './tools/chart-tools';
import { prepareHelm3, prepareKubernetes, prepareMetricsServer, prepareTraefik } from './tools/cluster-tools';
import { isKafkaInstalled } from './kafka/install';
import { prepareKafka } from './kafka/broker';
import { isMinioInstalled, prepareMinio } from './minio/server';
import { chromium, findDebianProgram, nginx, prepareDebianProgram } from './tools/debian-programs';
import { findPythonTools, preparePythonTools } from './tools/python-tools';
import { findReleaseBefore, isReleaseBeforeInstalled, prepareReleaseBefore } from './tools/release-before';
import { beginRun } from './programs/runs';
import { findGo, findJava, findMaven, minioNeedsGo, MissingToolError } from './tools/tools';

export type StackPart = 'kafka' | 'minio';

/** Why each missing part cannot run. */
export type MissingParts = Partial<Record<StackPart | 'python' | 'nginx' | 'chromium' | 'helm' | 'release', string>>;

/**
 * Installs Kafka, MinIO, nginx, Chromium, the Python tools, those for charts and the release before into the cache,
 * with `cluster` also what a Kubernetes is made of, and returns the parts that cannot be installed because something
 * of the machine is missing. What waits for the network goes beside what compiles; Go uses all cores by itself, so its
 * builds follow each other.
 */
export async function installParts(
  say: (line: string) => void,
  { cluster = false }: { cluster?: boolean } = {},
): Promise<MissingParts & { cluster?: string }> {
  const run = await beginRun();
  try {
    const compiled = async () => ({
      ...(await attempt('minio', () => prepareMinio(say))),
      ...(await attempt('helm', () => prepareChartTools(say))),
      ...(cluster ? await attempt('cluster', () => prepareCluster(say)) : {}),
    });
    const fetched = async () => ({
      ...(await attempt('kafka', () => prepareKafka(run, say))),
      ...(await attempt('python', () => preparePythonTools(say))),
      ...(await attempt('nginx', () => prepareDebianProgram(nginx, say))),
      ...(await attempt('chromium', () => prepareDebianProgram(chromium, say))),
      ...(await attempt('release', () => prepareReleaseBefore(say))),
    });
    // One that fails must not leave the other one behind, at work.
    const [fetching, compiling] = await Promise.allSettled([fetched(), compiled()]);
    if (fetching.status === 'rejected') throw fetching.reason as Error;
    if (compiling.status === 'rejected') throw compiling.reason as Error;
    return { ...fetching.value, ...compiling.value };
  } finally {
    await run.end();
  }
}

async function prepareCluster(say: (line: string) => void): Promise<void> {
  await prepareKubernetes(say);
  await prepareTraefik(say);
  await prepareMetricsServer(say);
  await prepareHelm3(say);
}

const without: Record<StackPart, string> = {
  kafka: 'Install it, or start with --bus postgres, which needs no Kafka.',
  minio: 'Install it, or start with --store files, which needs no MinIO.',
};

/** Throws a MissingToolError that names each missing tool of `parts`, before anything is fetched. */
export async function requireTools(parts: readonly StackPart[]): Promise<void> {
  const [kafka, minio] = await Promise.all([isKafkaInstalled(), isMinioInstalled()]);
  const missing = await findMissingTools({ kafka, minio });
  const sentences = parts.flatMap((part) => (missing[part] === undefined ? [] : [`${missing[part]} ${without[part]}`]));
  if (sentences.length > 0) throw new MissingToolError(sentences.join('\n'));
}

async function findMissingTools(installed: Record<StackPart, boolean>): Promise<MissingParts> {
  return {
    ...(installed.kafka ? {} : await attempt('kafka', findMaven)),
    ...(await attempt('kafka', findJava)),
    ...(installed.minio ? {} : await attempt('minio', () => findGo(minioNeedsGo))),
  };
}

/** Returns which parts cannot run now, without installing anything. */
export async function findMissingParts(): Promise<MissingParts> {
  const [kafka, minio, release] = await Promise.all([
    isKafkaInstalled(),
    isMinioInstalled(),
    isReleaseBeforeInstalled(),
  ]);
  let python: string | undefined;
  let proxy: string | undefined;
  let browser: string | undefined;
  const missing: MissingParts = {
    ...(await findMissingTools({ kafka, minio })),
    ...(await attempt('python', async () => (python = await findPythonTools()))),
    ...(await attempt('nginx', async () => (proxy = await findDebianProgram(nginx)))),
    ...(await attempt('chromium', async () => (browser = await findDebianProgram(chromium)))),
    ...(release ? {} : await attempt('release', findReleaseBefore)),
  };
  if (!kafka) missing.kafka ??= 'Kafka is not installed yet; npm test does that.';
  if (!minio) missing.minio ??= 'MinIO is not installed yet; npm test does that.';
  if (!(await areChartToolsInstalled()))
    missing.helm = 'The tools for charts are not installed yet; npm test does that.';
  if (!release) missing.release ??= 'The release before is not built yet; npm test does that.';
  if (python === undefined) missing.python ??= 'The Python tools are not installed yet; npm test does that.';
  if (proxy === undefined) missing.nginx ??= 'nginx is not fetched yet; npm test does that.';
  if (browser === undefined) missing.chromium ??= 'Chromium is not fetched yet; npm test does that.';
  return missing;
}

async function attempt<P extends string>(part: P, work: () => Promise<unknown>): Promise<{ [Part in P]?: string }> {
  try {
    await work();
    return {};
  } catch (error) {
    if (error instanceof MissingToolError) return { [part]: error.message } as { [Part in P]?: string };
    throw error;
  }
}
