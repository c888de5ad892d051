import type { KafkaSasl } from '@granary/shared/kafka/broker-options';

/** Holds what the test run says of its Kafka and MinIO, as JSON of `TestStack`. */
export const testStackVariable = 'GRANARY_TEST_STACK';

export type StackPart = 'kafka' | 'minio' | 'python' | 'nginx' | 'chromium' | 'helm' | 'release';

export interface TestStack {
  /** The address of the server that starts the parts; none runs before a suite asks for it. */
  url: string;
  /** The parts that cannot run here, each with the sentence that says why. */
  missing: Partial<Record<StackPart, string>>;
}

/**
 * A broker, without topics of its own and for the whole test run: give topics and groups names that nobody else has.
 */
export interface TestKafka {
  brokers: string[];
  sasl: KafkaSasl;
}

/** An object store, empty and for the whole test run: make buckets with names that nobody else has. */
export interface TestMinio {
  /** `http://host:port` */
  endpoint: string;
  accessKey: string;
  secretKey: string;
  /** Path of the program, for suites that need a server of their own to harm. */
  program: string;
}

/**
 * Jest's `describe` for suites that need those parts: where one is missing it is `describe.skip`, unless
 * REQUIRE_STACK=1 says that nothing may be missing; then the suite runs, and fails with the reason when it asks for the
 * part.
 */
export function describeWith<D extends { skip: unknown }>(describe: D, ...parts: StackPart[]): D | D['skip'] {
  return isSkippedWithout(...parts) ? describe.skip : describe;
}

/** Whether one of the parts is missing, and may be. */
export function isSkippedWithout(...parts: StackPart[]): boolean {
  const { missing } = readTestStack();
  return parts.some((part) => missing[part] !== undefined) && process.env['REQUIRE_STACK'] !== '1';
}

/** The run's Kafka, started when it is first asked for. */
export function kafkaForTests(): Promise<TestKafka> {
  return askTestStack<TestKafka>('kafka');
}

/** The run's MinIO, started when it is first asked for. */
export function minioForTests(): Promise<TestMinio> {
  return askTestStack<TestMinio>('minio');
}

/** The interpreter of a Python that has schemathesis and openapi-python-client. */
export async function pythonForTests(): Promise<string> {
  return (await askTestStack<{ interpreter: string }>('python')).interpreter;
}

/** The program of nginx. */
export async function nginxForTests(): Promise<string> {
  return (await askTestStack<{ program: string }>('nginx')).program;
}

/** The program of Chromium. */
export async function chromiumForTests(): Promise<string> {
  return (await askTestStack<{ program: string }>('chromium')).program;
}

/**
 * The folder with the programs `helm`, `kubeconform`, `kube-score`, `helm-docs` and `tilt-check`, and definitions of
 * resources.
 */
export async function chartToolsForTests(): Promise<string> {
  return (await askTestStack<{ folder: string }>('helm')).folder;
}

/** The folder with the sources and the builds of the release before this one. */
export async function releaseBeforeForTests(): Promise<string> {
  return (await askTestStack<{ folder: string }>('release')).folder;
}

/** Sees to it that what the services' processes run is what the sources say. The first who asks has it built. */
export async function builtServices(): Promise<void> {
  await askTestStack('build');
}

/**
 * Asks jest's main process for something of the run, or to do something for a suite. Throws with the reason when it
 * cannot.
 */
export async function askTestStack<T>(what: string, request: object = {}): Promise<T> {
  const { url, missing } = readTestStack();
  const reason = missing[what as StackPart];
  if (reason !== undefined) throw new Error(reason);
  const response = await fetch(`${url}/${what}`, { method: 'POST', body: JSON.stringify(request) });
  if (response.status !== 200) throw new Error(await response.text());
  return (await response.json()) as T;
}

function readTestStack(): TestStack {
  const text = process.env[testStackVariable];
  if (text === undefined) throw new Error(`${testStackVariable} is not set: run the tests through jest`);
  return JSON.parse(text) as TestStack;
}
