import { unavailable } from '../../errors';

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
  private readonly waiters: Array<(buffer: Buffer) => void> = [];
  private inUse = 0;
  private trimTimer: NodeJS.Timeout | undefined;

  constructor(
    readonly sizeBytes: number,
    private readonly count: number,
    private readonly timeoutMs: number,
  ) {}

  /** A buffer, or undefined when all are in use. */
  tryAcquire(): Buffer | undefined {
    if (this.inUse >= this.count) return undefined;
    this.inUse++;
    return this.free.pop() ?? Buffer.allocUnsafeSlow(this.sizeBytes);
  }

  /** Waits for a buffer. Throws UNAVAILABLE after the timeout. */
  async acquire(): Promise<Buffer> {
    const buffer = this.tryAcquire();
    if (buffer) return buffer;
    return new Promise((resolve, reject) => {
      const serve = (released: Buffer) => {
        clearTimeout(timer);
        resolve(released);
      };
      const timer = setTimeout(() => {
        this.waiters.splice(this.waiters.indexOf(serve), 1);
        reject(unavailable('Too many uploads are under way'));
      }, this.timeoutMs);
      this.waiters.push(serve);
    });
  }

  /** Returns a buffer to which nothing refers any more. */
  release(buffer: Buffer): void {
    const next = this.waiters.shift();
    if (next) return next(buffer);
    this.inUse--;
    this.free.push(buffer);
    if (this.free.length > freeMax) this.trimTimer ??= setTimeout(() => this.trim(), trimAfterMs).unref();
  }

  /** Frees the place of a buffer without reusing it, for a failed request may still refer to it. */
  discard(): void {
    const next = this.waiters.shift();
    if (next) return next(Buffer.allocUnsafeSlow(this.sizeBytes));
    this.inUse--;
  }

  private trim(): void {
    this.trimTimer = undefined;
    this.free.splice(0, this.free.length - freeMax);
  }
}
