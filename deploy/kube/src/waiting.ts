import { eventually } from '@granary/testing/eventually';
import { limitMs } from '@granary/testing/speed';

/** The pause between two looks, each of which starts one process or several. */
const pollEveryMs = 1_000;

/** A time limit on the reference machine, as kubectl and Helm take it, for this machine. */
export const scaledSeconds = (seconds: number): string => `${Math.ceil(limitMs(seconds * 1_000) / 1_000)}s`;

/**
 * Resolves once `check` returns true. Throws after `referenceMs` on the reference machine, with the `title` of what was
 * expected.
 */
export async function waitUntil(title: string, check: () => Promise<boolean>, referenceMs: number): Promise<void> {
  await eventually(check, referenceMs, { title, everyMs: pollEveryMs });
}

/** Returns the result of `work`, or throws the reason of `signal` once that is aborted. */
export async function withinLimit<T>(signal: AbortSignal, work: () => Promise<T>): Promise<T> {
  let abort = (): void => undefined;
  const aborted = new Promise<never>((_resolve, reject) => {
    abort = () => reject(signal.reason as Error);
    signal.addEventListener('abort', abort);
  });
  try {
    signal.throwIfAborted();
    return await Promise.race([aborted, work()]);
  } finally {
    signal.removeEventListener('abort', abort);
  }
}
