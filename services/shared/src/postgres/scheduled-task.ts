import { jittered, pause } from '../concurrency/backoff';
import type { Logger } from '../logger';
import { createLease } from './lease';
import type { Pool } from './pool';

export interface ScheduledTaskOptions {
  pool: Pool;
  log: Logger;
  /** Its name in the database of the service. */
  name: string;
  /** The time from the end of a run, in whichever process, to the start of the next. */
  everyMs: number;
  /** Runs the task once. Aborted: the process stops, or another one may have started the task. */
  run: (stopping: AbortSignal) => Promise<void>;
  /** How long the lease of a process that was killed during a run prevents the next run. */
  leaseMs?: number;
}

/** How often a process tries to get the lease of a task that runs rarely. */
const acquireEveryMs = 15_000;

/**
 * Runs a task periodically, in one process of the service at a time and as often as if there were only one: by a lease
 * in the database, which nobody can take between the runs. A process that is paused and does not know that its lease
 * has expired may run the task concurrently with another, so a run must be harmless beside another; the lease only
 * saves work. A failure is logged, and the task runs again at its next time.
 */
export function startScheduledTask(options: ScheduledTaskOptions): { stop(): Promise<void> } {
  const { pool, log, name, everyMs, run, leaseMs = 30_000 } = options;
  const lease = createLease(pool, name, leaseMs);
  const stopped = new AbortController();

  const runOnce = async (): Promise<void> => {
    const lost = new AbortController();
    const renew = async () => {
      await lease.take().catch(() => undefined);
      if (!lease.isHeld()) lost.abort();
    };
    const renewing = setInterval(() => void renew(), leaseMs / 4);
    try {
      await run(AbortSignal.any([stopped.signal, lost.signal]));
    } finally {
      clearInterval(renewing);
      // A run that was interrupted by a stop can be taken over at once.
      await lease.release(stopped.signal.aborted ? undefined : everyMs);
    }
  };

  const running = (async () => {
    while (!stopped.signal.aborted) {
      try {
        if (await lease.take()) await runOnce();
      } catch (error) {
        if (!stopped.signal.aborted)
          log.warn({ err: error, task: name }, 'a scheduled task failed, it runs again later');
      }
      await pause(jittered(Math.min(everyMs, acquireEveryMs)), stopped.signal);
    }
  })();
  return {
    stop: async () => {
      stopped.abort();
      await running;
    },
  };
}
