import { mkdir, open } from 'node:fs/promises';
import path from 'node:path';
import { ConfigError } from '@granary/shared/config';
import { stopAll } from '@granary/shared/service/lifecycle';
import { filesystemPath } from '@granary/blobs/stores/filesystem';
import { openS3Copies, type ObjectCopies } from '@granary/blobs/stores/s3/copies';
import { syncDirectory, writeHashed } from './hashed-file';
import type { Say } from '../program/progress';
import type { ServeObjects } from '../program/served-objects';

export type ObjectStoreKind = 'files' | 'minio';

export interface ObjectsOptions {
  dataDir: string;
  serveObjects?: ServeObjects | undefined;
  say: Say;
  signal: AbortSignal;
}

/** Opens the objects of a data directory; starts its MinIO if it is not running. */
export async function openObjects(kind: ObjectStoreKind, options: ObjectsOptions): Promise<ObjectCopies> {
  const { dataDir, serveObjects, say, signal } = options;
  if (kind === 'files') return openFiles(path.join(dataDir, 'objects'));
  if (serveObjects === undefined)
    throw new ConfigError('The blobs are in MinIO: run this command by npm in a checkout, which can start it.');
  const { endpoint, accessKey, secretKey, bucket, stop } = await serveObjects(path.join(dataDir, 'minio'), say, signal);
  try {
    const copies = await openS3Copies({ endpoint, accessKey, secretKey, region: 'us-east-1', bucket });
    return { ...copies, close: () => stopAll([stop, () => copies.close()]) };
  } catch (error) {
    await stop().catch(() => {});
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
