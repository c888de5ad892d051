import { unavailable } from '../../errors';

/** Buffers that are kept although nobody has needed them for a while. */
const keptFree = 4;
/**
 * And for so long all of them: a large buffer that is made for each upload costs a collection of garbage every few
 * uploads.
 */
const keptMs = 1_000;

/**
 * The memory in which parts of uploads are gathered: at most `count` buffers of `sizeBytes` exist, whatever is under
 * way. A buffer is used again once nothing refers to it; one of which that is not known is given up instead.
 */
export class PartBuffers {
  private readonly free: Buffer[] = [];
  private readonly waiting: Array<(buffer: Buffer) => void> = [];
  private taken = 0;
  private trimming: NodeJS.Timeout | undefined;

  constructor(
    readonly sizeBytes: number,
    private readonly count: number,
    private readonly patienceMs: number,
  ) {}

  /** A buffer at once, or undefined. */
  tryTake(): Buffer | undefined {
    if (this.taken >= this.count) return undefined;
    this.taken++;
    return this.free.pop() ?? Buffer.allocUnsafeSlow(this.sizeBytes);
  }

  /** A buffer as soon as there is one. Throws UNAVAILABLE when that takes too long. */
  async take(): Promise<Buffer> {
    const buffer = this.tryTake();
    if (buffer) return buffer;
    return new Promise((resolve, reject) => {
      const serve = (given: Buffer) => {
        clearTimeout(timer);
        resolve(given);
      };
      const timer = setTimeout(() => {
        this.waiting.splice(this.waiting.indexOf(serve), 1);
        reject(unavailable('Too many uploads are under way'));
      }, this.patienceMs);
      this.waiting.push(serve);
    });
  }

  /** Gives back a buffer that nobody refers to any more. */
  give(buffer: Buffer): void {
    const next = this.waiting.shift();
    if (next) return next(buffer);
    this.taken--;
    this.free.push(buffer);
    if (this.free.length > keptFree) this.trimming ??= setTimeout(() => this.trim(), keptMs).unref();
  }

  /** Gives back the right to a buffer that a broken request may still refer to. */
  giveUp(): void {
    const next = this.waiting.shift();
    if (next) return next(Buffer.allocUnsafeSlow(this.sizeBytes));
    this.taken--;
  }

  private trim(): void {
    this.trimming = undefined;
    this.free.splice(0, this.free.length - keptFree);
  }
}
