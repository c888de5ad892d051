import { S3Bucket, type S3Options } from './client';
import { PartBuffers } from './part-buffers';
import { S3Download } from './download';
import { receiveIntoS3 } from './upload';

/** Access to the objects of a store by key, for backups. */
export interface ObjectCopies {
  /** Undefined: there is no such object. */
  read(key: string): Promise<AsyncIterable<Buffer> | undefined>;
  /** Adds an object under an unused key, and returns what was written. */
  write(
    key: string,
    source: AsyncIterable<Buffer>,
    signal: AbortSignal,
  ): Promise<{ sizeBytes: number; sha256: string }>;
  /** Makes all written objects durable. */
  close(): Promise<void>;
}

const partBytes = 8 * 1024 * 1024;
const partBuffersMax = 16;
const bufferTimeoutMs = 600_000;

/** The objects of a store that openS3Store() opens in the same bucket without a prefix. Creates a missing bucket. */
export async function openS3Copies(options: S3Options): Promise<ObjectCopies> {
  const bucket = new S3Bucket(options);
  const buffers = new PartBuffers(partBytes, partBuffersMax, bufferTimeoutMs);
  await bucket.ensure();
  return {
    read: async (key) => {
      const answer = await bucket.get(`objects/${key}`);
      return answer && (new S3Download(bucket, `objects/${key}`, answer, undefined) as AsyncIterable<Buffer>);
    },
    write: async (key, source) => {
      const place = { key: `objects/${key}`, markerKey: `uploads/${key}` };
      const received = await receiveIntoS3(bucket, buffers, place, source);
      await received.keep();
      return received;
    },
    close: () => Promise.resolve(bucket.close()),
  };
}
