import path from 'node:path';
import type { Client } from 'pg';
import { forEachConcurrently } from '@granary/shared/concurrency/for-each';
import { ConfigError } from '@granary/shared/config';
import type { ObjectCopies } from '@granary/blobs/stores/s3/copies';
import { usedObjects, type ObjectRow } from './cut-rows';
import type { FileSum } from './hashed-file';
import { readLines, writeLines } from './lines';
import type { ManifestFile } from './manifest';
import { inMebibytes, startProgress, type Say } from '../program/progress';
import type { Repository } from './repository';

const copiesAtOnce = 8;
export const blobsFile = 'blobs.ndjson';

export interface CopiedBlobs {
  /** Distinct contents of the blobs in this backup, and their bytes. */
  contents: number;
  sizeBytes: number;
  /** Contents that the target did not have. */
  copied: number;
  copiedBytes: number;
}

/** Copies the contents of all used objects that the target does not have, and lists all of them in `blobs.ndjson`. */
export async function copyBlobs(options: {
  /** A snapshot of the database of blobs at the cut. */
  blobs: Client;
  objects: ObjectCopies;
  repository: Repository;
  folder: string;
  say: Say;
  signal: AbortSignal;
}): Promise<CopiedBlobs & { file: ManifestFile }> {
  const { blobs, objects, repository, folder, say, signal } = options;
  const sums = new Map<string, number>();
  const underWay = new Map<string, Promise<void>>();
  const counts = { copied: 0, copiedBytes: 0 };
  const progress = startProgress(say, (done) => `  blobs: ${done} checked, ${counts.copied} copied`);
  const copyOne = async ({ key, appId, isStored, ...sum }: ObjectRow): Promise<void> => {
    if (!(await repository.hasBlob(sum))) {
      const source = await objects.read(key);
      if (source === undefined) {
        // An uncommitted upload, in progress at the cut.
        if (!isStored) return;
        throw new ConfigError(`The object ${key} of the app ${appId} is missing in the object store.`);
      }
      const mismatch = `The object ${key} of the app ${appId} is damaged: its bytes are not those that were uploaded.`;
      await repository.addBlob(sum, source, mismatch, signal);
      counts.copied++;
      counts.copiedBytes += sum.sizeBytes;
    }
    sums.set(sum.sha256, sum.sizeBytes);
  };
  const copy = async (object: ObjectRow): Promise<void> => {
    signal.throwIfAborted();
    progress.add(1);
    // Equal objects of two apps are copied once.
    await underWay.get(object.sha256);
    if (sums.has(object.sha256)) return;
    const copying = copyOne(object).finally(() => underWay.delete(object.sha256));
    underWay.set(object.sha256, copying);
    await copying;
  };
  await forEachConcurrently(copiesAtOnce, usedObjects(blobs), copy);
  const { file, lines } = await writeLines(path.join(folder, blobsFile), listed(sums));
  const sizeBytes = [...sums.values()].reduce((total, size) => total + size, 0);
  say(
    `  blobs: ${counts.copied} copied (${inMebibytes(counts.copiedBytes)}), ${lines - counts.copied} already in the backup directory`,
  );
  return { file, contents: lines, sizeBytes, ...counts };
}

/** Bytes of the used contents that the target does not have. */
export async function missingBytes(blobs: Client, repository: Repository): Promise<number> {
  const counted = new Set<string>();
  let total = 0;
  await forEachConcurrently(copiesAtOnce, usedObjects(blobs), async (object) => {
    if (counted.has(object.sha256)) return;
    counted.add(object.sha256);
    if (!(await repository.hasBlob(object))) total += object.sizeBytes;
  });
  return total;
}

/** The contents listed by a backup. */
export const listedBlobs = (folder: string): AsyncGenerator<FileSum> =>
  readLines<FileSum>(path.join(folder, blobsFile));

async function* listed(sums: ReadonlyMap<string, number>): AsyncGenerator<FileSum> {
  for (const [sha256, sizeBytes] of sums) yield { sha256, sizeBytes };
}
