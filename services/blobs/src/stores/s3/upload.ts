import { createHash } from 'node:crypto';
import type { S3Bucket } from './client';
import type { PartBuffers } from './part-buffers';
import type { ReceivedObject } from '../store';

/** The destination of an upload. */
export interface Destination {
  /** The key of the object; it was never used before. */
  key: string;
  /**
   * The key of an empty object that exists while a multipart upload of `key` may be open. Sweeps find uploads by it.
   */
  markerKey: string;
}

/** Files up to this size need no buffer of the pool. */
const unpooledMaxBytes = 256 * 1024;

/**
 * Receives a stream in two phases: the bytes now, the object by `keep`. Up to the size of one part they are held in
 * memory and `keep` puts them. Larger ones are sent in parts, each while the next one fills: at most two are held, and
 * the source waits for the store. `keep` completes the multipart upload, which nothing can read until then.
 */
export async function receiveIntoS3(
  bucket: S3Bucket,
  buffers: PartBuffers,
  destination: Destination,
  source: AsyncIterable<Buffer>,
): Promise<Omit<ReceivedObject, 'key'>> {
  const hash = createHash('sha256');
  const upload = new Upload(bucket, buffers, destination);
  try {
    for await (const chunk of source) {
      hash.update(chunk);
      await upload.write(chunk);
    }
    await upload.end();
  } catch (error) {
    await upload.discard();
    throw error;
  }
  const sha256 = hash.digest('hex');
  return {
    sha256,
    sizeBytes: upload.sizeBytes,
    keep: () => upload.keep(sha256),
    discard: () => upload.discard(),
  };
}

class Upload {
  sizeBytes = 0;
  /** The first bytes, before a buffer is needed. */
  private head: Buffer[] = [];
  /** The part that is being filled. */
  private part: Buffer | undefined;
  private filledBytes = 0;
  private uploadId: string | undefined;
  private readonly etags: string[] = [];
  /** The part that is being sent. Resolves to its buffer, which can be reused then. */
  private sending: Promise<Buffer> | undefined;
  private hasMarker = false;
  private state: 'receiving' | 'keeping' | 'kept' = 'receiving';

  constructor(
    private readonly bucket: S3Bucket,
    private readonly buffers: PartBuffers,
    private readonly to: Destination,
  ) {}

  async write(chunk: Buffer): Promise<void> {
    this.sizeBytes += chunk.length;
    if (!this.part && this.sizeBytes <= unpooledMaxBytes) {
      // A small view of a large buffer is copied, for it would keep the whole buffer in memory.
      this.head.push(chunk.length < chunk.buffer.byteLength / 2 ? Buffer.from(chunk) : chunk);
      return;
    }
    if (!this.part) {
      this.part = await this.buffers.acquire();
      for (const first of this.head) await this.fill(first);
      this.head = [];
    }
    await this.fill(chunk);
  }

  private async fill(chunk: Buffer): Promise<void> {
    for (let offset = 0; offset < chunk.length;) {
      if (this.filledBytes === this.buffers.sizeBytes) await this.sendPart();
      const copied = chunk.copy(this.part!, this.filledBytes, offset);
      this.filledBytes += copied;
      offset += copied;
    }
  }

  /**
   * Starts sending the full part, and continues in another buffer, or in the one of the previous part once it is sent.
   */
  private async sendPart(): Promise<void> {
    this.uploadId ??= await this.begin();
    const previous = this.sending && (await this.sent());
    const next = previous ?? this.buffers.tryAcquire();
    this.startSending();
    this.part = next ?? (await this.sent());
    this.filledBytes = 0;
  }

  private async begin(): Promise<string> {
    await this.bucket.put(this.to.markerKey, Buffer.alloc(0));
    this.hasMarker = true;
    return this.bucket.beginUpload(this.to.key);
  }

  private startSending(): void {
    const [part, index] = [this.part!, this.etags.length];
    this.etags.push('');
    const send = async () => {
      this.etags[index] = await this.bucket.putPart(
        this.to.key,
        this.uploadId!,
        index + 1,
        part.subarray(0, this.filledBytes),
      );
      return part;
    };
    this.part = undefined;
    this.sending = send();
    // The error is handled where the part is awaited, which may be much later.
    this.sending.catch(() => {});
  }

  private async sent(): Promise<Buffer> {
    const buffer = await this.sending!;
    this.sending = undefined;
    return buffer;
  }

  /** Sends the last part of a multipart upload. */
  async end(): Promise<void> {
    if (this.uploadId === undefined) return;
    if (this.sending) this.buffers.release(await this.sent());
    this.startSending();
    this.buffers.release(await this.sent());
  }

  async keep(sha256: string): Promise<void> {
    this.state = 'keeping';
    if (this.uploadId !== undefined) {
      await this.bucket.completeUpload(this.to.key, this.uploadId, this.etags, this.sizeBytes);
    } else {
      const bytes = this.part?.subarray(0, this.filledBytes) ?? Buffer.concat(this.head);
      await this.bucket.put(this.to.key, bytes, sha256);
      if (this.part) this.buffers.release(this.part);
      this.part = undefined;
      this.head = [];
    }
    this.state = 'kept';
    await this.cleanUp();
  }

  /**
   * Removes everything, as far as the store can be reached; sweeps remove the rest. Waits for a part that is being
   * sent, because one that arrives after the abort would stay.
   */
  async discard(): Promise<void> {
    if (this.state === 'kept') return;
    this.head = [];
    if (this.sending) {
      await this.sending.then(
        (buffer) => this.buffers.release(buffer),
        () => this.buffers.discard(),
      );
      this.sending = undefined;
    }
    if (this.part) this.buffers.discard();
    this.part = undefined;
    await this.cleanUp();
  }

  /** Removes the marker, and what a failed upload left. */
  private async cleanUp(): Promise<void> {
    try {
      // The store may have completed a request whose answer was lost.
      if (this.state === 'keeping') await this.bucket.remove(this.to.key);
      if (!this.hasMarker) return;
      await this.bucket.abortUploads(this.to.key);
      await this.bucket.remove(this.to.markerKey);
    } catch {
      // The caller needs the outcome of the upload; sweeps find what is left.
    }
  }
}
