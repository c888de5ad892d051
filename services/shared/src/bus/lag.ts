import type { ReadResponse } from '../gen/granary/events/v1/ReadResponse';

/** A lag that is longer than this is reported in health. */
export const behindMs = 5_000;

/** Whether something has lasted long enough to be reported; `sinceMs` by `performance.now()`. */
export function isBehind(sinceMs: number | undefined, allowedMs = behindMs): boolean {
  return sinceMs !== undefined && performance.now() - sinceMs > allowedMs;
}

/** How old an event was when the outbox was read, by the clock of the outbox. */
export function ageMs({ readAtMs }: ReadResponse, { at: time }: { at: string }): number {
  // An older release does not send the time.
  return (Number(readAtMs) || Date.now()) - Date.parse(time);
}

/** The time, by `performance.now()`, at which the first event of a page was appended. */
export function oldestSince(response: ReadResponse): number | undefined {
  const [first] = response.events;
  return first && performance.now() - ageMs(response, first);
}
