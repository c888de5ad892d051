import type { Finding } from '../health';

/** From here on being behind is worth a word in health. */
export const behindMs = 5_000;

export const degraded = (message: string): Finding => ({ status: 'DEGRADED', message });

/** Whether a state that began then, on the clock of `performance.now()`, has lasted long enough to be said. */
export function hasLasted(sinceMs: number | undefined): boolean {
  return sinceMs !== undefined && performance.now() - sinceMs > behindMs;
}

/** Whether the time of an event is long enough ago to be said. */
export function isBehind(sinceMs: number | undefined, allowedMs = behindMs): boolean {
  return sinceMs !== undefined && Date.now() - sinceMs > allowedMs;
}
