import type { ReadResponse } from '../gen/granary/events/v1/ReadResponse';

/** From here on being behind is worth a word in health. */
export const behindMs = 5_000;

/** Whether something has lasted long enough to be said; `sinceMs` by `performance.now()`. */
export function isBehind(sinceMs: number | undefined, allowedMs = behindMs): boolean {
  return sinceMs !== undefined && performance.now() - sinceMs > allowedMs;
}

/** How old an event was when the outbox was read, by the clock of the outbox. */
export function ageMs({ readAtMs }: ReadResponse, { at }: { at: string }): number {
  // An older release does not say when it was.
  return (Number(readAtMs) || Date.now()) - Date.parse(at);
}

/** Since when, by `performance.now()`, the first event of what was read has been there. */
export function oldestSince(found: ReadResponse): number | undefined {
  const [first] = found.events;
  return first && performance.now() - ageMs(found, first);
}
