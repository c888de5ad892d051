/** A deadline, and what to do when it has passed. */
export interface Deadline {
  /** The time of the deadline by `performance.now()`, a monotonic clock. */
  expiresAtMs: number;
  expire(): void;
}

/** Minimum interval between sweeps, which bounds their number and how late a deadline expires. */
const sweepEveryMs = 10;

/**
 * All pending deadlines of this process. Almost none of them expires, so instead of a timer for each there is one, for
 * the earliest: when it fires, that deadline has usually been cancelled long before.
 */
const pending = new Set<Deadline>();
let sweeping: NodeJS.Timeout | undefined;
let sweepAtMs = Infinity;

/**
 * `expire` is called once, after `timeoutMs` and at most some milliseconds, unless `cancelDeadline` is called before.
 */
export function startDeadline(timeoutMs: number, expire: () => void): Deadline {
  const one = { expiresAtMs: performance.now() + timeoutMs, expire };
  pending.add(one);
  if (one.expiresAtMs < sweepAtMs) sweepIn(timeoutMs);
  return one;
}

export function cancelDeadline(one: Deadline): void {
  pending.delete(one);
}

function sweepIn(ms: number): void {
  clearTimeout(sweeping);
  // Node fires a timer with a longer delay immediately.
  const pauseMs = Math.min(Math.max(ms, sweepEveryMs), 2 ** 31 - 1);
  sweepAtMs = performance.now() + pauseMs;
  sweeping = setTimeout(sweep, pauseMs).unref();
}

function sweep(): void {
  const nowMs = performance.now();
  sweepAtMs = Infinity;
  let firstMs = Infinity;
  const due: Deadline[] = [];
  for (const one of pending) {
    if (one.expiresAtMs > nowMs) firstMs = Math.min(firstMs, one.expiresAtMs);
    else due.push(one);
  }
  // A sweep that comes late finds several.
  due.sort((one, other) => one.expiresAtMs - other.expiresAtMs);
  // One may have been cancelled by another.
  for (const one of due) if (pending.delete(one)) one.expire();
  if (firstMs < sweepAtMs) sweepIn(firstMs - nowMs);
}
