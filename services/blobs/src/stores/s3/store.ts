import { randomBytes } from 'node:crypto';
import { ConfigError } from '@granary/shared/config';
import { S3Bucket, type S3Options } from './client';
import { PartBuffers } from './part-buffers';
import { S3Download } from './download';
import { receiveIntoS3 } from './upload';
import type { ObjectStore } from '../store';

export interface S3StoreOptions extends S3Options {
  /** Prefix of all keys; empty, or ending in a slash. */
  prefix: string;
  /** Identifies the database that owns the objects. A bucket and prefix of another owner is refused. */
  owner: string;
  /** The endpoint in presigned URLs for clients; without it there are none. */
  publicEndpoint?: string;
  /** Whether the gateway reads from the store by URLs of `endpoint`. */
  hasDirectReads?: boolean;
  partBytes?: number;
  /** Bounds the memory of all uploads together. */
  uploadBytesMax?: number;
}

const KEY = /^[0-9a-f]{2}\/[0-9a-f]{2}\/[0-9a-f]{32}$/;

const defaultPartBytes = 8 * 1024 * 1024;
const defaultUploadBytesMax = 256 * 1024 * 1024;
const bufferTimeoutMs = 10_000;
const presignedLifetimeS = 300;
/** The gateway opens the URL at once; the clocks of the store and of this process may differ. */
const readUrlLifetimeS = 30;

/**
 * An object store in a bucket of S3, MinIO or a compatible service, shared by any number of processes. Below the
 * prefix, `objects/` holds the objects by random keys, `uploads/` a marker for each multipart upload, `owner` the id of
 * the owning database, and `probe/` the objects of health checks. Creates a missing bucket. Throws a ConfigError when
 * it cannot be used, a NotAvailableError when it is not there now.
 */
export async function openS3Store(options: S3StoreOptions): Promise<ObjectStore> {
  const { prefix } = options;
  const bucket = new S3Bucket(options);
  await bucket.ensure();
  await claim(bucket, options);
  const reader = options.publicEndpoint && new S3Bucket({ ...options, endpoint: options.publicEndpoint });
  const partBytes = options.partBytes ?? defaultPartBytes;
  const partsMax = Math.floor((options.uploadBytesMax ?? defaultUploadBytesMax) / partBytes);
  const buffers = new PartBuffers(partBytes, partsMax, bufferTimeoutMs);
  const objects = `${prefix}objects/`;
  const markers = `${prefix}uploads/`;
  const probes = `${prefix}probe/`;
  const probeKey = probes + randomBytes(16).toString('hex');
  const pathOf = (key: string) => {
    if (!KEY.test(key)) throw new RangeError('not a key of this store');
    return objects + key;
  };
  return {
    receive: async (source) => {
      const key = newKey();
      return { key, ...(await receiveIntoS3(bucket, buffers, { key: pathOf(key), markerKey: markers + key }, source)) };
    },
    read: async (key, range) => {
      const answer = await bucket.get(pathOf(key), range);
      return answer && new S3Download(bucket, pathOf(key), answer, range);
    },
    stat: async (key) => {
      const sizeBytes = await bucket.size(pathOf(key));
      return sizeBytes === undefined ? undefined : { sizeBytes };
    },
    delete: (key) => bucket.remove(pathOf(key)),
    probe: () => probe(bucket, probeKey),
    sweep: async (before, knownKeys) => {
      const orphans = await removeOld(bucket, objects, before, async (keys) => {
        const kept = await knownKeys(keys);
        return keys.filter((key) => !kept.has(key));
      });
      const uploads = await removeOld(bucket, markers, before, async (keys) => {
        for (const key of keys) await bucket.abortUploads(objects + key);
        return keys;
      });
      await removeOld(bucket, probes, before, (keys) => Promise.resolve(keys));
      return orphans + uploads;
    },
    ...(reader && { presign: (key, headers) => reader.presign(pathOf(key), presignedLifetimeS, headers) }),
    ...(options.hasDirectReads && { readUrl: (key: string) => bucket.presign(pathOf(key), readUrlLifetimeS) }),
    close: () => bucket.close(),
  };
}

function newKey(): string {
  const name = randomBytes(16).toString('hex');
  return `${name.slice(0, 2)}/${name.slice(2, 4)}/${name}`;
}

/** Records the owner, or refuses a store of another owner: a sweep would remove all its objects. */
async function claim(bucket: S3Bucket, options: S3StoreOptions): Promise<void> {
  const key = `${options.prefix}owner`;
  const before = await read(bucket, key);
  if (!before) await bucket.put(key, Buffer.from(options.owner));
  const owner = before ?? (await read(bucket, key));
  if (owner?.toString() === options.owner) return;
  throw new ConfigError(
    `The bucket ${options.bucket} holds the blobs of another installation under "${options.prefix}": ` +
      'each needs a bucket or a prefix of its own, and keeps it together with its database',
  );
}

async function probe(bucket: S3Bucket, key: string): Promise<void> {
  const content = randomBytes(16);
  await bucket.put(key, content);
  if (!(await read(bucket, key))?.equals(content)) {
    throw new Error('the object store returned other bytes than were written');
  }
}

async function read(bucket: S3Bucket, key: string): Promise<Buffer | undefined> {
  const answer = await bucket.get(key);
  return answer && Buffer.concat((await answer.toArray()) as Buffer[]);
}

/** Removes those objects below a prefix, unchanged since `before`, that `choose` returns. Returns how many. */
async function removeOld(
  bucket: S3Bucket,
  prefix: string,
  before: Date,
  choose: (names: readonly string[]) => Promise<readonly string[]>,
): Promise<number> {
  let count = 0;
  for await (const page of bucket.listObjects(prefix)) {
    const old = page.filter(({ changedAt }) => changedAt < before).map(({ key }) => key.slice(prefix.length));
    if (old.length === 0) continue;
    for (const name of await choose(old)) {
      await bucket.remove(prefix + name);
      count++;
    }
  }
  return count;
}
