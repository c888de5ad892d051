/** Something that waits, and what is to happen when it has waited too long. */
export interface Waiting {
  /** On the clock of `performance.now()`, which nobody sets. */
  expiresAtMs: number;
  expire(): void;
}

/** Time between two sweeps, so that many deadlines cannot mean many sweeps: how late a deadline may be noticed. */
const sweepEveryMs = 10;

/**
 * What waits anywhere in this process. Almost nothing of it ever expires, so instead of a timer for each there is one,
 * for the first of them: when it is due, whatever had that deadline has long been answered.
 */
const waiting = new Set<Waiting>();
let sweeping: NodeJS.Timeout | undefined;
let sweepAtMs = Infinity;

/** `expire` is called once, after `timeoutMs` and at most some milliseconds, unless `stopWaiting` is called before. */
export function startWaiting(timeoutMs: number, expire: () => void): Waiting {
  const one = { expiresAtMs: performance.now() + timeoutMs, expire };
  waiting.add(one);
  if (one.expiresAtMs < sweepAtMs) sweepIn(timeoutMs);
  return one;
}

export function stopWaiting(one: Waiting): void {
  waiting.delete(one);
}

function sweepIn(ms: number): void {
  clearTimeout(sweeping);
  // A timer for longer would fire at once.
  const pauseMs = Math.min(Math.max(ms, sweepEveryMs), 2 ** 31 - 1);
  sweepAtMs = performance.now() + pauseMs;
  sweeping = setTimeout(sweep, pauseMs).unref();
}

function sweep(): void {
  const nowMs = performance.now();
  sweepAtMs = Infinity;
  let firstMs = Infinity;
  for (const one of waiting) {
    if (one.expiresAtMs > nowMs) {
      firstMs = Math.min(firstMs, one.expiresAtMs);
    } else {
      waiting.delete(one);
      one.expire();
    }
  }
  if (firstMs < sweepAtMs) sweepIn(firstMs - nowMs);
}
