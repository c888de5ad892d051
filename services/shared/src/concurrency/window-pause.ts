const factor = 4;
/** The shortest pause between two windows of a feed, where nothing else is said. */
export const windowPauseMsMin = 15;
const mostMs = 1_000;

/** A window of a feed that has been read, and perhaps sent. */
export interface TakenWindow {
  /** How long that took; or the average of windows, where one alone must not count for much. */
  takenMs: number;
  /** Whether there is more behind it: a pause would let the feed fall further behind. */
  hasMore: boolean;
  /** The shortest pause, in place of the usual one. */
  leastPauseMs?: number;
}

/**
 * The pause before the next window of a feed, in milliseconds: several times what a window takes, within bounds.
 * Under load windows grow rather than the time that feeds take.
 */
export function windowPauseMs({ takenMs, hasMore, leastPauseMs = windowPauseMsMin }: TakenWindow): number {
  return hasMore ? leastPauseMs : Math.min(Math.max(leastPauseMs, takenMs * factor), mostMs);
}
