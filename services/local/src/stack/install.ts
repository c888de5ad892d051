import { areChartToolsInstalled, prepareChartTools } from './chart-tools';
import { isKafkaInstalled } from './kafka-install';
import { prepareKafka } from './kafka-broker';
import { isMinioInstalled, prepareMinio } from './minio-server';
import { findPythonTools, preparePythonTools } from './python-tools';
import { findReleaseBefore, isReleaseBeforeInstalled, prepareReleaseBefore } from './release-before';
import { beginRun } from './runs';
import { findGo, findJava, findMaven, minioNeedsGo, MissingToolError } from './tools';

export type StackPart = 'kafka' | 'minio';

/** Why each missing part cannot run. */
export type MissingParts = Partial<Record<StackPart | 'python' | 'helm' | 'release', string>>;

/**
 * Installs Kafka, MinIO, the Python tools, those for charts and the release before into the cache, and returns the parts that
 * cannot be installed because something of the machine is missing.
 */
export async function installParts(say: (line: string) => void): Promise<MissingParts> {
  const run = await beginRun();
  try {
    return {
      ...(await attempt('kafka', () => prepareKafka(run, say))),
      ...(await attempt('minio', () => prepareMinio(say))),
      ...(await attempt('python', () => preparePythonTools(say))),
      ...(await attempt('helm', () => prepareChartTools(say))),
      ...(await attempt('release', () => prepareReleaseBefore(say))),
    };
  } finally {
    await run.end();
  }
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
  const missing: MissingParts = {
    ...(await findMissingTools({ kafka, minio })),
    ...(await attempt('python', async () => (python = await findPythonTools()))),
    ...(release ? {} : await attempt('release', findReleaseBefore)),
  };
  if (!kafka) missing.kafka ??= 'Kafka is not installed yet; npm test does that.';
  if (!minio) missing.minio ??= 'MinIO is not installed yet; npm test does that.';
  if (!(await areChartToolsInstalled()))
    missing.helm = 'The tools for charts are not installed yet; npm test does that.';
  if (!release) missing.release ??= 'The release before is not built yet; npm test does that.';
  if (python === undefined) missing.python ??= 'The Python tools are not installed yet; npm test does that.';
  return missing;
}

async function attempt(part: keyof MissingParts, work: () => Promise<unknown>): Promise<MissingParts> {
  try {
    await work();
    return {};
  } catch (error) {
    if (error instanceof MissingToolError) return { [part]: error.message };
    throw error;
  }
}
