import { mkdir } from 'node:fs/promises';
import { prepareMinio, startMinio, type Minio } from '@granary/stack/minio/server';
import { beginRun, type Run } from '@granary/stack/programs/runs';
import { serve } from './child';

/** The MinIO of the benchmark, built first if necessary. It ends with this process. */
let run: Run | undefined;
let minio: Minio | undefined;

const calls = {
  /** Returns its address, and the name and the password of its root user. */
  start: async (directory: string) => {
    const command = await prepareMinio((line) => console.error(line));
    run = await beginRun();
    await mkdir(directory);
    minio = await startMinio(command, { run, directory });
    const { endpoint, accessKey, secretKey } = minio;
    return { endpoint, accessKey, secretKey };
  },
  stop: async () => {
    await minio?.stop();
    await run?.end();
  },
};

export type MinioCalls = typeof calls;

serve(calls);
