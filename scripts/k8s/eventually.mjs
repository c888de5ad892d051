import { limitMs } from '@granary/testing/speed';
import { setTimeout as delay } from 'node:timers/promises';

const pollMs = 1_000;

/** A time limit on the reference machine, as kubectl and Helm take it, for this machine. */
export const scaledSeconds = (seconds) => `${Math.ceil(limitMs(seconds * 1_000) / 1_000)}s`;

/**
 * Resolves once `check` returns true. Throws after `referenceMs` on the reference machine, with `what` was expected.
 */
export async function eventually(what, check, referenceMs) {
  const timeoutMs = limitMs(referenceMs);
  const deadlineMs = performance.now() + timeoutMs;
  while (!(await check())) {
    if (performance.now() > deadlineMs) throw new Error(`not within ${timeoutMs / 1_000} s: ${what}`);
    await delay(pollMs);
  }
}
