import { startWaiting, stopWaiting, type Waiting } from './deadlines';
import { fairQueue } from './fair-queue';

export interface FairLimiterLimits {
  /** Works that run at once. */
  concurrency: number;
  /** Works that wait, in total and of one key. */
  queueMax: number;
  queuePerKeyMax: number;
  timeoutMs: number;
}

interface Queued {
  waiting: Waiting;
  start: () => void;
}

/**
 * Runs so many works at once; others wait, and are taken from one key after the other. A work that finds the queue full,
 * or waits too long, is refused with the error that `refusal` makes.
 */
export class FairLimiter {
  private running = 0;
  private readonly queue = fairQueue<Queued>();

  constructor(
    private readonly limits: FairLimiterLimits,
    private readonly refusal: () => Error,
  ) {}

  /** Resolves and rejects as `work` does. */
  async run<T>(key: string, work: () => Promise<T>): Promise<T> {
    if (this.running < this.limits.concurrency) this.running += 1;
    else await this.enqueue(key);
    try {
      return await work();
    } finally {
      const next = this.queue.take(() => false);
      if (next) {
        stopWaiting(next.waiting);
        next.start();
      } else {
        this.running -= 1;
      }
    }
  }

  counts(): { running: number; waiting: number } {
    return { running: this.running, waiting: this.queue.size };
  }

  private enqueue(key: string): Promise<void> {
    const { queueMax, queuePerKeyMax, timeoutMs } = this.limits;
    if (this.queue.size >= queueMax || this.queue.sizeOf(key) >= queuePerKeyMax) return Promise.reject(this.refusal());
    return new Promise((resolve, reject) => {
      const waiting = startWaiting(timeoutMs, () => {
        this.queue.remove(key, queued);
        reject(this.refusal());
      });
      const queued: Queued = { waiting, start: resolve };
      this.queue.add(key, queued);
    });
  }
}
