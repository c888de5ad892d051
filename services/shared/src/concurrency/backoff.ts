import type { CancelSignal } from './cancellation';

export interface BackoffOptions {
  /** The longest delay after the first failure; it doubles with each failure. */
  firstMs: number;
  /** The longest delay after any failure. */
  maxMs: number;
}

/**
 * Delays between attempts: exponential backoff with full jitter. After the nth failure in a row the delay is random,
 * between 0 and `firstMs` × 2ⁿ⁻¹, at most `maxMs`; so clients that failed together do not retry together. One object
 * for each operation that is retried:
 *
 *     const backoff = new Backoff({ firstMs: 50, maxMs: 1_000 });
 *     for (;;) {
 *       try { await attempt(); backoff.reset(); } catch (error) { await backoff.wait(stopped); }
 *     }
 */
export class Backoff {
  private count = 0;

  constructor(
    private readonly options: BackoffOptions,
    private readonly random: () => number = Math.random,
  ) {}

  /** Failures since the last reset. */
  get failures(): number {
    return this.count;
  }

  /** Counts a failure and returns how long to wait before the next attempt. */
  nextMs(): number {
    const { firstMs, maxMs } = this.options;
    const longestMs = Math.min(maxMs, firstMs * 2 ** this.count);
    this.count += 1;
    return this.random() * longestMs;
  }

  /** Resets the count of failures, after a success. */
  reset(): void {
    this.count = 0;
  }

  /** Counts a failure and waits before the next attempt, or until `signal` aborts. Never rejects. */
  wait(signal?: CancelSignal): Promise<void> {
    return pause(this.nextMs(), signal);
  }
}

/** Waits, at most until `signal` aborts. Never rejects: callers that end on an abort check the signal. */
export function pause(ms: number, signal?: CancelSignal): Promise<void> {
  if (signal?.aborted) return Promise.resolve();
  return new Promise((resolve) => {
    const end = () => {
      clearTimeout(timer);
      signal?.removeEventListener('abort', end);
      resolve();
    };
    const timer = setTimeout(end, ms);
    signal?.addEventListener('abort', end);
  });
}

/** `ms` ± `ratio`, at random: keeps what runs periodically in several processes from running at the same moments. */
export function jittered(ms: number, ratio = 0.2): number {
  return ms * (1 - ratio + 2 * ratio * Math.random());
}
