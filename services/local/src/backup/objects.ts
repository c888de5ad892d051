import { mkdir, open } from 'node:fs/promises';
import path from 'node:path';
import { stopAll } from '@granary/shared/service/lifecycle';
import { filesystemPath } from '@granary/blobs/stores/filesystem';
import { openS3Copies, type ObjectCopies } from '@granary/blobs/stores/s3/copies';
import { findMinioAccess, type MinioAccess } from '../stack/minio-access';
import { prepareMinio, startMinio } from '../stack/minio-server';
import { beginRun } from '../stack/runs';
import { bucket } from '../stack/stack';
import { syncDirectory, writeHashed } from './hashed-file';
import type { Say } from './progress';

export type ObjectStoreKind = 'files' | 'minio';

/** Opens the objects of a data directory; starts its MinIO if it is not running. */
export async function openObjects(
  kind: ObjectStoreKind,
  dataDir: string,
  say: Say,
  signal: AbortSignal,
): Promise<ObjectCopies> {
  if (kind === 'files') return openFiles(path.join(dataDir, 'objects'));
  const directory = path.join(dataDir, 'minio');
  const running = await findMinioAccess(directory);
  if (running) return openBucket(running, []);
  const program = await prepareMinio(say, signal);
  const stops: Array<() => Promise<void>> = [];
  try {
    const run = await beginRun();
    stops.push(() => run.end());
    const minio = await startMinio(program, { run, directory });
    stops.push(() => minio.stop());
    return await openBucket(minio, stops);
  } catch (error) {
    await stopAll(stops).catch(() => {});
    throw error;
  }
}

function openFiles(directory: string): ObjectCopies {
  const made = new Set<string>();
  return {
    read: async (key) => {
      const handle = await open(filesystemPath(directory, key), 'r').catch((error: NodeJS.ErrnoException) => {
        if (error.code === 'ENOENT') return undefined;
        throw error;
      });
      return handle?.createReadStream({ highWaterMark: 256 * 1024 }) as AsyncIterable<Buffer> | undefined;
    },
    write: async (key, source, signal) => {
      const file = filesystemPath(directory, key);
      await mkdir(path.dirname(file), { recursive: true, mode: 0o700 });
      for (let folder = path.dirname(file); folder.startsWith(directory); folder = path.dirname(folder))
        made.add(folder);
      return writeHashed(file, source, undefined, signal);
    },
    close: async () => {
      for (const folder of made) await syncDirectory(folder);
    },
  };
}

async function openBucket(access: MinioAccess, stops: Array<() => Promise<void>>): Promise<ObjectCopies> {
  const { endpoint, accessKey, secretKey } = access;
  const copies = await openS3Copies({ endpoint, accessKey, secretKey, region: 'us-east-1', bucket });
  return { ...copies, close: () => stopAll([...stops, () => copies.close()]) };
}
