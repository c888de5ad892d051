import type { IncomingMessage } from 'node:http';
import { Readable } from 'node:stream';
import { unavailable } from '@granary/shared/errors';
import type { S3Bucket } from './client';
import type { ByteRange } from '../store';

/** Consecutive broken connections without a byte in between. */
const retriesMax = 5;
const bufferBytes = 256 * 1024;

/**
 * The body of an object. When the connection breaks or times out while the reader wants more, it requests the rest and
 * continues if the entity tag is the same. Otherwise the stream fails; it never ends early.
 */
export class S3Download extends Readable {
  private answer: IncomingMessage | undefined;
  private position: number;
  private readonly end: number;
  private readonly etag: string | undefined;
  private breaks = 0;

  constructor(
    private readonly bucket: S3Bucket,
    private readonly key: string,
    first: IncomingMessage,
    range: ByteRange | undefined,
  ) {
    super({ highWaterMark: bufferBytes });
    this.position = range?.start ?? 0;
    this.end = range?.end ?? Number(first.headers['content-length']) - 1;
    this.etag = first.headers.etag;
    this.attach(first);
  }

  override _read(): void {
    if (!this.answer?.isPaused()) return;
    this.answer.setTimeout(this.bucket.idleTimeoutMs);
    this.answer.resume();
  }

  override _destroy(error: Error | null, callback: (error: Error | null) => void): void {
    this.answer?.destroy();
    callback(error);
  }

  private attach(answer: IncomingMessage): void {
    this.answer = answer;
    answer.on('data', (chunk: Buffer) => {
      this.position += chunk.length;
      this.breaks = 0;
      if (this.position > this.end + 1) return this.destroy(new Error('the object store sent more than was requested'));
      if (this.push(chunk)) return;
      answer.pause();
      // The timeout is for the store, not for a slow reader.
      answer.setTimeout(0);
    });
    // 'close' follows every error, and handles it.
    answer.on('error', () => {});
    answer.once('close', () => {
      if (this.destroyed) return;
      this.answer = undefined;
      if (this.position === this.end + 1) this.push(null);
      else void this.resumeAfterBreak();
    });
  }

  private async resumeAfterBreak(): Promise<void> {
    try {
      if (++this.breaks > retriesMax) throw unavailable('The object store cannot be reached');
      const answer = await this.bucket.getRest(this.key, { start: this.position, end: this.end });
      if (answer?.headers.etag !== this.etag) {
        answer?.destroy();
        throw new Error('the object changed while it was read');
      }
      if (this.destroyed) answer!.destroy();
      else this.attach(answer!);
    } catch (error) {
      this.destroy(error as Error);
    }
  }
}
