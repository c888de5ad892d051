import { unavailable } from '@granary/shared/errors';
import type { PendingWrite } from './write';
import { waitingBytes } from './metrics';

const defaultBytesMax = 256 * 1024 * 1024;

/** The memory budget of writes that are being parsed or wait for their batch, of all apps. */
export class WriteMemory {
  private used = 0;

  /** `bytesMax`: bytes of writes that may wait in this process, of all apps together. */
  constructor(private readonly bytesMax = defaultBytesMax) {}

  /** Throws UNAVAILABLE when the budget is used up. */
  refuseWhenFull(): void {
    if (this.used >= this.bytesMax) throw unavailable('Too many writes are waiting');
  }

  take(bytes: number): void {
    this.used += bytes;
    waitingBytes.inc(bytes);
  }

  /** Releases the writes of a batch that begins. */
  release(batch: readonly PendingWrite[]): void {
    this.take(-batch.reduce((sum, { write }) => sum + write.bytes, 0));
  }

  /** Takes the bytes of a body while it is parsed. Throws UNAVAILABLE when the budget is used up. */
  async during<T>(bytes: number, parse: () => Promise<T>): Promise<T> {
    this.refuseWhenFull();
    this.take(bytes);
    try {
      return await parse();
    } finally {
      this.take(-bytes);
    }
  }
}
