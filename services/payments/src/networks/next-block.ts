import { pause } from '@granary/shared/concurrency/backoff';
import type { CancelSignal } from '@granary/shared/concurrency/cancellation';
import { createSignal } from '@granary/shared/concurrency/signal';

/** The pause between two looks for the next block, while somebody waits for it. */
const everyMs = 200;

/**
 * Tells the next block of a network to any number of payments that wait for it. They share the looks, and nobody looks
 * while none of them waits.
 */
export class NextBlock {
  private readonly arrived = createSignal();
  private waiting = 0;
  private isLooking = false;

  /** @param latest Names the latest block; undefined: it cannot be told now. Never rejects. */
  constructor(private readonly latest: () => Promise<string | undefined>) {}

  /** Resolves at the next block, after `timeoutMs`, or when `aborted` aborts. Never rejects. */
  async wait(timeoutMs: number, aborted: CancelSignal): Promise<void> {
    this.waiting += 1;
    if (!this.isLooking) void this.look();
    await this.arrived.wait(timeoutMs, aborted);
    this.waiting -= 1;
  }

  private async look(): Promise<void> {
    this.isLooking = true;
    let last = await this.latest();
    while (this.waiting > 0) {
      await pause(everyMs);
      const latest = await this.latest();
      if (latest !== undefined && latest !== last) this.arrived.notify();
      last = latest ?? last;
    }
    this.isLooking = false;
  }
}
