import { Semaphore } from '@granary/shared/concurrency/semaphore';
import { unavailable } from '@granary/shared/errors';

/** Free buffers that stay allocated. */
const freeMax = 4;
/** How long all free buffers stay allocated: allocating one for each upload costs a garbage collection every few. */
const trimAfterMs = 1_000;

/**
 * A pool of buffers in which parts of uploads are assembled. At most `count` buffers of `sizeBytes` exist, whatever the
 * number of uploads; those that wait for one are served in order.
 */
export class PartBuffers {
  private readonly free: Buffer[] = [];
  private readonly places: Semaphore;
  private trimTimer: NodeJS.Timeout | undefined;

  constructor(
    readonly sizeBytes: number,
    count: number,
    timeoutMs: number,
  ) {
    const refusal = () => unavailable('Too many uploads are under way');
    // The service bounds the uploads that are under way, and with them what waits here.
    this.places = new Semaphore(count, { max: Infinity, timeoutMs, refusal });
  }

  /** A buffer, or undefined when all are in use. */
  tryAcquire(): Buffer | undefined {
    return this.places.tryAcquire() ? this.next() : undefined;
  }

  /** Waits for a buffer. Throws UNAVAILABLE after the timeout. */
  async acquire(): Promise<Buffer> {
    await this.places.acquire();
    return this.next();
  }

  /** Returns a buffer to which nothing refers any more. */
  release(buffer: Buffer): void {
    this.free.push(buffer);
    if (this.free.length > freeMax) this.trimTimer ??= setTimeout(() => this.trim(), trimAfterMs).unref();
    this.places.release();
  }

  /** Frees the place of a buffer without reusing it, for a failed request may still refer to it. */
  discard(): void {
    this.places.release();
  }

  private next(): Buffer {
    return this.free.pop() ?? Buffer.allocUnsafeSlow(this.sizeBytes);
  }

  private trim(): void {
    this.trimTimer = undefined;
    this.free.splice(0, Math.max(0, this.free.length - freeMax));
  }
}
