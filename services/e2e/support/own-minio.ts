import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { minioForTests, type TestMinio } from '@granary/testing/stack';
import { startMinio } from '@granary/stack/minio/server';
import { beginRun } from '@granary/stack/programs/runs';

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
  const run = await beginRun();
  const directory = await mkdtemp(join(tmpdir(), 'granary-minio-'));
  let minio = await startMinio(program, { run, directory });
  const { endpoint, port, accessKey, secretKey } = minio;
  const kill = async () => {
    minio.program.kill('SIGKILL');
    await minio.program.ended;
  };
  return {
    endpoint,
    accessKey,
    secretKey,
    kill,
    start: async () => {
      minio = await startMinio(program, { run, directory, port, keys: { accessKey, secretKey } });
    },
    freeze: () => minio.program.kill('SIGSTOP'),
    thaw: () => minio.program.kill('SIGCONT'),
    stop: async () => {
      await kill();
      await rm(directory, { recursive: true, force: true });
      await run.end();
    },
  };
}
