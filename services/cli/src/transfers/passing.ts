import { setTimeout as delay } from 'node:timers/promises';
import { exitCodes, Failure } from '../failure.ts';

/** A connection that broke off within an answer. */
export class BrokenOff extends Failure {
  constructor(reason: string) {
    super(`The connection broke off: ${reason}`, {
      exitCode: exitCodes.unreachable,
      nextStep: '`granary status` asks whether the service runs.',
    });
  }
}

const shortestMs = 250;
const longestMs = 10_000;

/** Waits before another attempt, longer after each failure. Rejects with the reason of the signal. */
export async function pauseAfter(failures: number, signal: AbortSignal): Promise<void> {
  const ms = Math.min(longestMs, shortestMs * 2 ** failures) * (0.5 + Math.random() / 2);
  await delay(ms, undefined, { signal }).catch(() => signal.throwIfAborted());
}
