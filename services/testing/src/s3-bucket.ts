import { randomUUID } from 'node:crypto';
import { S3Bucket } from '@granary/blobs/stores/s3/client';
import { openS3Store, type S3StoreOptions } from '@granary/blobs/stores/s3/store';
import type { ObjectStore } from '@granary/blobs/stores/store';
import type { TestMinio } from './stack';

export const mebibyte = 1024 * 1024;
/** The smallest that S3 allows. */
export const partBytes = 5 * mebibyte;
export const nothingKnown = () => Promise.resolve(new Set<string>());

export async function* chunksOf(bytes: Buffer, size = 64 * 1024): AsyncGenerator<Buffer> {
  for (let at = 0; at < bytes.length; at += size) yield await Promise.resolve(bytes.subarray(at, at + size));
}

export async function readAll(
  store: ObjectStore,
  key: string,
  range?: { start: number; end: number },
): Promise<Buffer> {
  const stream = await store.read(key, range);
  return Buffer.concat((await stream!.toArray()) as Buffer[]);
}

/** Options of a store on a new bucket. */
export function storeOptions(minio: Omit<TestMinio, 'program'>, more: Partial<S3StoreOptions> = {}): S3StoreOptions {
  const { endpoint, accessKey, secretKey } = minio;
  return {
    endpoint,
    accessKey,
    secretKey,
    region: 'us-east-1',
    bucket: `test-${randomUUID()}`,
    prefix: 'blobs/',
    owner: 'the test',
    partBytes,
    ...more,
  };
}

/** A store on a new bucket, and functions that list the bucket. */
export async function openTestStore(minio: Omit<TestMinio, 'program'>, more: Partial<S3StoreOptions> = {}) {
  const options = storeOptions(minio, more);
  const store = await openS3Store(options);
  const bucket = new S3Bucket({ ...options, endpoint: minio.endpoint });
  const keysBelow = async (prefix: string) => {
    const keys: string[] = [];
    for await (const page of bucket.listObjects(prefix)) keys.push(...page.map(({ key }) => key.slice(prefix.length)));
    return keys;
  };
  /** Open multipart uploads, and their markers. */
  const uploads = async () => {
    const keys: string[] = [];
    for await (const { key } of bucket.listUploads('')) keys.push(key);
    return [...keys, ...(await keysBelow('blobs/uploads/'))];
  };
  /** Whether MinIO has parts of a key. After a restart it lists them by the whole key only. */
  const hasParts = async (key: string) => (await bucket.listUploads(`blobs/objects/${key}`).next()).done !== true;
  return { store, options, objects: () => keysBelow('blobs/objects/'), uploads, hasParts };
}

/** A new bucket: the settings of a service that uses it, and a list of its objects and upload markers. */
export function testBucket(minio: Omit<TestMinio, 'program'>) {
  const { endpoint, accessKey, secretKey } = minio;
  const bucket = `test-${randomUUID()}`;
  const look = new S3Bucket({ endpoint, accessKey, secretKey, bucket, region: 'us-east-1' });
  return {
    settings: {
      OBJECT_STORE: 's3',
      S3_ENDPOINT: endpoint,
      S3_BUCKET: bucket,
      S3_ACCESS_KEY: accessKey,
      S3_SECRET_KEY: secretKey,
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
