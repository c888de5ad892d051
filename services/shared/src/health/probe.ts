import { within } from '../concurrency/within';

/** The result of a probe: an answer, a failure, or that there is no answer yet. */
export type Look<T> = { latencyMs: number } & (
  | { state: 'answered'; value: T }
  | { state: 'failed' }
  | { state: 'late' }
  /** Late for longer than the limit. */
  | { state: 'overdue' }
);

export interface ProbeLimits {
  /** How long a call of `look` waits for an answer. */
  answerMs: number;
  /** How long there may be no answer before the probe is overdue. */
  overdueMs: number;
}

interface Attempt<T> {
  startedMs: number;
  result: Promise<Look<T> | undefined>;
  isSettled: boolean;
}

/** A probe that was not called for this long starts afresh. */
const gapMaxMs = 60_000;

/**
 * Calls a check, one call at a time. Slow is not dead: an answer that does not arrive in time is late, and the next
 * `look` waits for the same call. Only after `overdueMs` without any answer is the call abandoned and repeated. Times
 * are on the monotonic clock.
 */
export class Probe<T> {
  private attempt: Attempt<T> | undefined;
  private lateSinceMs: number | undefined;
  private lookedMs = -Infinity;

  /** An error for which `isTimeout` is true does not count as an answer. */
  constructor(
    private readonly ask: () => Promise<T>,
    private readonly limits: ProbeLimits,
    private readonly isTimeout: (error: unknown) => boolean,
  ) {}

  async look(): Promise<Look<T>> {
    const { answerMs, overdueMs } = this.limits;
    const nowMs = performance.now();
    const isPending = this.attempt !== undefined && !this.attempt.isSettled;
    if (!isPending && nowMs - this.lookedMs > gapMaxMs) this.lateSinceMs = undefined;
    if (!isPending || nowMs - this.attempt!.startedMs > overdueMs) this.attempt = this.begin(nowMs);
    const { result, startedMs } = this.attempt!;
    const look = await within(answerMs, result);
    this.lookedMs = performance.now();
    if (look) {
      this.lateSinceMs = undefined;
      return look;
    }
    this.lateSinceMs ??= startedMs;
    const latencyMs = this.lookedMs - this.lateSinceMs;
    return { state: latencyMs >= overdueMs ? 'overdue' : 'late', latencyMs };
  }

  /** The result is undefined after a timeout. */
  private begin(startedMs: number): Attempt<T> {
    const latencyMs = () => {
      attempt.isSettled = true;
      return performance.now() - startedMs;
    };
    const result = this.ask().then(
      (value): Look<T> => ({ state: 'answered', value, latencyMs: latencyMs() }),
      (error: unknown): Look<T> | undefined => {
        const failed: Look<T> = { state: 'failed', latencyMs: latencyMs() };
        return this.isTimeout(error) ? undefined : failed;
      },
    );
    const attempt: Attempt<T> = { startedMs, result, isSettled: false };
    return attempt;
  }
}
