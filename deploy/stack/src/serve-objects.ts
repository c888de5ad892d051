import { stopAll } from '@granary/shared/service/lifecycle';
import type { ServeObjects } from '@granary/operator/program/served-objects';
import { findMinioAccess } from './minio/access';
import { prepareMinio, startMinio } from './minio/server';
import { beginRun } from './programs/runs';
import { bucket } from './stack';

/** Lets `npm run backup` and `npm run restore` at the objects of a data directory of `npm run stack`. */
export const serveObjects: ServeObjects = async (directory, say, signal) => {
  const running = await findMinioAccess(directory);
  if (running) return { ...running, bucket, stop: () => Promise.resolve() };
  const program = await prepareMinio(say, signal);
  const stops: Array<() => Promise<void>> = [];
  try {
    const run = await beginRun();
    stops.push(() => run.end());
    const minio = await startMinio(program, { run, directory });
    stops.push(() => minio.stop());
    const { endpoint, accessKey, secretKey } = minio;
    return { endpoint, accessKey, secretKey, bucket, stop: () => stopAll(stops) };
  } catch (error) {
    await stopAll(stops).catch(() => {});
    throw error;
  }
};
