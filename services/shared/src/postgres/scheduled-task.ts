import { setTimeout as delay } from 'node:timers/promises';
import type { Logger } from '../logger';
import { createLease } from './lease';
import type { Pool } from './pool';

export interface ChoreOptions {
  pool: Pool;
  log: Logger;
  /** Its name in the database of the service. */
  name: string;
  /** From the end of one round, on whichever copy, to the beginning of the next. */
  everyMs: number;
  /** Does one round. Aborted: the process stops, or another copy may have begun. */
  run: (stopping: AbortSignal) => Promise<void>;
  /** How long a copy that was killed in the middle keeps others from the next round. */
  leaseMs?: number;
}

/** How often a copy asks whether it is its turn, when rounds are rare. */
const askEveryMs = 15_000;

/**
 * Does something again and again, on one copy of the service at a time and as often as if there were only one: a lease
 * in the database says whose turn it is, and rests between the rounds. One that is paused and does not know that it has
 * lost the lease may go on beside another, so a round must do no harm beside another; this is to save work. A failure is
 * logged, and the next round comes.
 */
export function startChore(options: ChoreOptions): { stop(): Promise<void> } {
  const { pool, log, name, everyMs, run, leaseMs = 30_000 } = options;
  const lease = createLease(pool, name, leaseMs);
  const stopped = new AbortController();

  const round = async (): Promise<void> => {
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
      // What a stop has cut short is another copy's at once.
      await lease.release(stopped.signal.aborted ? undefined : everyMs);
    }
  };

  const running = (async () => {
    while (!stopped.signal.aborted) {
      try {
        if (await lease.take()) await round();
      } catch (error) {
        if (!stopped.signal.aborted) log.warn({ err: error, chore: name }, 'a chore failed, it is done again later');
      }
      const pauseMs = Math.min(everyMs, askEveryMs) * (0.8 + 0.4 * Math.random());
      await delay(pauseMs, undefined, { signal: stopped.signal }).catch(() => {});
    }
  })();
  return {
    stop: async () => {
      stopped.abort();
      await running;
    },
  };
}
