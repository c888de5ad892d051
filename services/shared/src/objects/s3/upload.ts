import { createHash } from 'node:crypto';
import type { S3Bucket } from './client';
import type { PartBuffers } from './part-buffers';
import type { ReceivedObject } from '../store';

/** Where an upload goes. */
export interface Destination {
  /** The key of the object. */
  key: string;
  /** The key of a note that exists as long as an upload in parts may be under way to `key`; sweeps go by it. */
  noteKey: string;
}

/** What arrives before an upload takes a buffer; smaller files never do. */
const gatheredMaxBytes = 256 * 1024;

/**
 * Takes in a stream under a key that nobody has used. Up to the size of one part it is held and sent by `keep`. Of
 * more, each full part is sent while the next one fills (so at most two are held, and the source waits for the
 * store), and `keep` makes an object of them: until then they are an upload that nobody can read.
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
  /** The first bytes, until they are too many. */
  private gathered: Buffer[] = [];
  /** The part that is being filled, from then on. */
  private part: Buffer | undefined;
  private filledBytes = 0;
  private uploadId: string | undefined;
  private readonly etags: string[] = [];
  /** The part that is being sent. Resolves to its buffer, of which nothing is needed any more. */
  private sending: Promise<Buffer> | undefined;
  private isNoted = false;
  private state: 'receiving' | 'keeping' | 'kept' = 'receiving';

  constructor(
    private readonly bucket: S3Bucket,
    private readonly buffers: PartBuffers,
    private readonly to: Destination,
  ) {}

  async write(chunk: Buffer): Promise<void> {
    this.sizeBytes += chunk.length;
    if (!this.part && this.sizeBytes <= gatheredMaxBytes) {
      // A copy of little, for a small chunk can be a view of a large buffer that it would keep alive.
      this.gathered.push(chunk.length < chunk.buffer.byteLength / 2 ? Buffer.from(chunk) : chunk);
      return;
    }
    if (!this.part) {
      this.part = await this.buffers.take();
      for (const first of this.gathered) await this.fill(first);
      this.gathered = [];
    }
    await this.fill(chunk);
  }

  private async fill(chunk: Buffer): Promise<void> {
    for (let at = 0; at < chunk.length;) {
      if (this.filledBytes === this.buffers.sizeBytes) await this.sendPart();
      const copied = chunk.copy(this.part!, this.filledBytes, at);
      this.filledBytes += copied;
      at += copied;
    }
  }

  /** Starts to send the full part, and takes another buffer or waits for the one that was sent before. */
  private async sendPart(): Promise<void> {
    this.uploadId ??= await this.begin();
    const previous = this.sending && (await this.sent());
    const next = previous ?? this.buffers.tryTake();
    this.startSending();
    this.part = next ?? (await this.sent());
    this.filledBytes = 0;
  }

  private async begin(): Promise<string> {
    await this.bucket.put(this.to.noteKey, Buffer.alloc(0));
    this.isNoted = true;
    return this.bucket.beginUpload(this.to.key);
  }

  private startSending(): void {
    const [part, at] = [this.part!, this.etags.length];
    this.etags.push('');
    const send = async () => {
      this.etags[at] = await this.bucket.putPart(
        this.to.key,
        this.uploadId!,
        at + 1,
        part.subarray(0, this.filledBytes),
      );
      return part;
    };
    this.part = undefined;
    this.sending = send();
    // It is met where it is waited for, which may be much later.
    this.sending.catch(() => {});
  }

  private async sent(): Promise<Buffer> {
    const buffer = await this.sending!;
    this.sending = undefined;
    return buffer;
  }

  /** Sends what is left of an upload in parts. */
  async end(): Promise<void> {
    if (this.uploadId === undefined) return;
    if (this.sending) this.buffers.give(await this.sent());
    this.startSending();
    this.buffers.give(await this.sent());
  }

  async keep(sha256: string): Promise<void> {
    this.state = 'keeping';
    if (this.uploadId !== undefined) {
      await this.bucket.completeUpload(this.to.key, this.uploadId, this.etags, this.sizeBytes);
    } else {
      const bytes = this.part?.subarray(0, this.filledBytes) ?? Buffer.concat(this.gathered);
      await this.bucket.put(this.to.key, bytes, sha256);
      if (this.part) this.buffers.give(this.part);
      this.part = undefined;
      this.gathered = [];
    }
    this.state = 'kept';
    await this.forget();
  }

  /**
   * Leaves nothing, as far as the store can be reached; what it could not be told is swept later. A part under way is
   * waited for, because one that arrives after the abort would stay.
   */
  async discard(): Promise<void> {
    if (this.state === 'kept') return;
    this.gathered = [];
    if (this.sending) {
      await this.sending.then(
        (buffer) => this.buffers.give(buffer),
        () => this.buffers.giveUp(),
      );
      this.sending = undefined;
    }
    if (this.part) this.buffers.giveUp();
    this.part = undefined;
    await this.forget();
  }

  /** Removes what is left beside a kept object, or of one that is not to be. */
  private async forget(): Promise<void> {
    try {
      // The store may have done what it could not answer any more.
      if (this.state === 'keeping') await this.bucket.remove(this.to.key);
      if (!this.isNoted) return;
      await this.bucket.abortUploads(this.to.key);
      await this.bucket.remove(this.to.noteKey);
    } catch {
      // The outcome of the upload matters more to the caller, and the sweep finds what is left.
    }
  }
}
