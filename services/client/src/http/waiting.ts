const shortestMs = 200;
const longestMs = 5_000;

/**
 * How long to wait before an attempt is made again: what the service asks for, else twice as long each time. Up to half
 * of it is left to chance, so that clients that failed together do not come together.
 */
export function backoffMs(failures: number, retryAfterMs: number | undefined): number {
  if (retryAfterMs !== undefined) return retryAfterMs * (1 + Math.random() / 4);
  return Math.min(longestMs, shortestMs * 2 ** failures) * (0.5 + Math.random() / 2);
}

/** Resolves after this time. Rejects with the reason of the signal when that is aborted. */
export function sleep(ms: number, signal: AbortSignal | undefined): Promise<void> {
  return new Promise((resolve, reject) => {
    if (signal?.aborted) return reject(signal.reason as Error);
    const onAbort = () => {
      clearTimeout(timer);
      reject(signal!.reason as Error);
    };
    const timer = setTimeout(() => {
      signal?.removeEventListener('abort', onAbort);
      resolve();
    }, ms);
    signal?.addEventListener('abort', onAbort, { once: true });
  });
}

/** Resolves as the work does, unless the signal is aborted before: then rejects with its reason. */
export function raced<T>(work: Promise<T>, signal: AbortSignal | undefined): Promise<T> {
  if (!signal) return work;
  return new Promise((resolve, reject) => {
    const onAbort = () => reject(signal.reason as Error);
    if (signal.aborted) onAbort();
    signal.addEventListener('abort', onAbort, { once: true });
    work.then(resolve, reject).finally(() => signal.removeEventListener('abort', onAbort));
  });
}
