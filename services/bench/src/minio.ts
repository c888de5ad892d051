import { mkdir } from 'node:fs/promises';
import { prepareMinio, startMinio } from '@granary/local/stack/minio-server';
import { beginRun } from '@granary/local/stack/runs';
import { serve } from './child.mjs';

/** A MinIO of its own, built first if necessary. It ends with this process. */
let run;
let minio;

serve({
  start: async (directory) => {
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
});
