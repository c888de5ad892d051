import { startDeadline, cancelDeadline, type Deadline } from './deadlines';

/** A bound on the tasks that wait. */
export interface SemaphoreQueue {
  /** Tasks that may wait; one more is refused at once. */
  max: number;
  /** How long a task may wait before it is refused. */
  timeoutMs: number;
  /** The error of a task that is refused. */
  refusal: () => Error;
}

interface Waiter {
  start: () => void;
  timeout: Deadline | undefined;
}

/** Limits how many tasks run at once; others wait in the order of arrival, without bounds unless `queue` sets them. */
export class Semaphore {
  private held = 0;
  private readonly waiters = new Set<Waiter>();

  constructor(
    private readonly limit: number,
    private readonly queue?: SemaphoreQueue,
  ) {}

  /** Whether a slot was free, and is now held. Each slot must be released. */
  tryAcquire(): boolean {
    if (this.held >= this.limit) return false;
    this.held += 1;
    return true;
  }

  /**
   * Undefined when a slot was free, which saves a turn of the event loop; else a promise that resolves with a slot, or
   * rejects when the queue refuses. Each slot must be released.
   */
  acquire(): Promise<void> | undefined {
    if (this.tryAcquire()) return undefined;
    const { queue } = this;
    if (queue && this.waiters.size >= queue.max) return Promise.reject(queue.refusal());
    return new Promise((resolve, reject) => {
      const waiter: Waiter = { start: resolve, timeout: undefined };
      this.waiters.add(waiter);
      if (!queue) return;
      waiter.timeout = startDeadline(queue.timeoutMs, () => {
        this.waiters.delete(waiter);
        reject(queue.refusal());
      });
    });
  }

  /** Passes the slot on to the task that has waited longest. */
  release(): void {
    for (const waiter of this.waiters) {
      this.waiters.delete(waiter);
      if (waiter.timeout) cancelDeadline(waiter.timeout);
      waiter.start();
      return;
    }
    this.held -= 1;
  }

  counts(): { held: number; waiting: number; limit: number } {
    return { held: this.held, waiting: this.waiters.size, limit: this.limit };
  }
}
