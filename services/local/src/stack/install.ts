import { isKafkaInstalled } from './kafka-install';
import { prepareKafka } from './kafka-broker';
import { isMinioInstalled, prepareMinio } from './minio-server';
import { beginRun } from './runs';
import { findGo, findJava, findMaven, MissingToolError } from './tools';

export type StackPart = 'kafka' | 'minio';

/** For each part that cannot run, the sentence that says why. */
export type MissingParts = Partial<Record<StackPart, string>>;

/** Puts Kafka and MinIO into the cache, and answers what cannot be put there because a tool of the machine is missing. */
export async function installParts(say: (line: string) => void): Promise<MissingParts> {
  const run = await beginRun();
  try {
    return {
      ...(await attempt('kafka', () => prepareKafka(run, say))),
      ...(await attempt('minio', () => prepareMinio(say))),
    };
  } finally {
    await run.end();
  }
}

/** Says, without installing anything, which parts cannot run now. */
export async function findMissingParts(): Promise<MissingParts> {
  const [kafka, minio] = await Promise.all([isKafkaInstalled(), isMinioInstalled()]);
  const missing = {
    ...(kafka ? {} : await attempt('kafka', findMaven)),
    ...(await attempt('kafka', findJava)),
    ...(minio ? {} : await attempt('minio', findGo)),
  };
  if (!kafka) missing.kafka ??= 'Kafka is not installed yet; npm test does that.';
  if (!minio) missing.minio ??= 'MinIO is not installed yet; npm test does that.';
  return missing;
}

async function attempt(part: StackPart, work: () => Promise<unknown>): Promise<MissingParts> {
  try {
    await work();
    return {};
  } catch (error) {
    if (error instanceof MissingToolError) return { [part]: error.message };
    throw error;
  }
}
