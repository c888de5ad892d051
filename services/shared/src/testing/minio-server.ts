import { spawn, type ChildProcess } from 'node:child_process';
import { randomBytes, randomUUID } from 'node:crypto';
import { once } from 'node:events';
import { mkdtemp, rm } from 'node:fs/promises';
import { createServer, type AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { S3Bucket } from '../objects/minio';
import { minioForTests, type TestMinio } from './stack';

const readyTimeoutMs = 30_000;

/** A server that nobody else uses, so that it may be harmed. */
export interface OwnMinio extends Omit<TestMinio, 'program'> {
  /** Ends it like a power cut. What it had taken in stays on the disk. */
  kill(): Promise<void>;
  /** Brings it back on the same port and directory, and waits until it answers. */
  start(): Promise<void>;
  /** It neither answers nor refuses, until it is thawed. */
  freeze(): void;
  thaw(): void;
  stop(): Promise<void>;
}

/** A MinIO of its own for a test, on a directory that goes with it. */
export async function startOwnMinio(): Promise<OwnMinio> {
  const { program } = await minioForTests();
  const directory = await mkdtemp(join(tmpdir(), 'granary-minio-'));
  const [port, accessKey, secretKey] = [await freePort(), 'granary-test', randomBytes(12).toString('hex')];
  const endpoint = `http://127.0.0.1:${port}`;
  const environment = {
    ...{ PATH: process.env['PATH'], HOME: directory, MINIO_BROWSER: 'off', MINIO_UPDATE: 'off' },
    ...{ MINIO_ROOT_USER: accessKey, MINIO_ROOT_PASSWORD: secretKey },
  };
  let child: ChildProcess | undefined;
  const start = async () => {
    child = spawn(program, ['server', join(directory, 'data'), '--address', `127.0.0.1:${port}`, '--quiet'], {
      env: environment,
      stdio: 'ignore',
    });
    const deadline = Date.now() + readyTimeoutMs;
    while (!(await isReady(endpoint))) {
      if (child.exitCode !== null || Date.now() > deadline) throw new Error('MinIO did not start');
      await delay(20);
    }
  };
  const end = async (signal: NodeJS.Signals) => {
    if (!child || child.exitCode !== null || child.signalCode !== null) return;
    const ended = once(child, 'exit');
    child.kill(signal);
    await ended;
  };
  await start();
  return {
    ...{ endpoint, accessKey, secretKey, start },
    kill: () => end('SIGKILL'),
    freeze: () => child?.kill('SIGSTOP'),
    thaw: () => child?.kill('SIGCONT'),
    stop: async () => {
      await end('SIGKILL');
      await rm(directory, { recursive: true, force: true });
    },
  };
}

/** A new bucket: the settings of a service that uses it, and all that is in it but the notes of the store. */
export function testBucket(minio: Omit<TestMinio, 'program'>) {
  const { endpoint, accessKey, secretKey } = minio;
  const bucket = `test-${randomUUID()}`;
  const look = new S3Bucket({ endpoint, accessKey, secretKey, bucket, region: 'us-east-1' });
  return {
    settings: {
      ...{ OBJECT_STORE: 's3', S3_ENDPOINT: endpoint, S3_BUCKET: bucket },
      ...{ S3_ACCESS_KEY: accessKey, S3_SECRET_KEY: secretKey },
    },
    showsArrivals: false,
    contents: async () => {
      const keys: string[] = [];
      for await (const page of look.listObjects('objects/')) keys.push(...page.map(({ key }) => key));
      for await (const page of look.listObjects('uploads/')) keys.push(...page.map(({ key }) => key));
      return keys;
    },
  };
}

async function isReady(endpoint: string): Promise<boolean> {
  const answer = await fetch(`${endpoint}/minio/health/ready`, { signal: AbortSignal.timeout(1_000) }).catch(
    () => undefined,
  );
  return answer?.status === 200;
}

async function freePort(): Promise<number> {
  const server = createServer().listen(0, '127.0.0.1');
  await once(server, 'listening');
  const { port } = server.address() as AddressInfo;
  server.close();
  return port;
}
