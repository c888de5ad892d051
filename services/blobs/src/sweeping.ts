import { setTimeout as delay } from 'node:timers/promises';
import type { BlobsContext } from './context';
import { knownKeys } from './objects';

/**
 * Removes what crashes left in a store that several processes share, now and every so often, until it is stopped.
 * Several copies may do so at the same time.
 */
export function startSweeping(
  context: BlobsContext,
  options: { everyMs: number; minAgeMs: number },
): { stop(): Promise<void> } {
  const { store, pool, log } = context;
  if (!store.sweep) return { stop: () => Promise.resolve() };
  const stopped = new AbortController();
  const sweep = async () => {
    const count = await store.sweep!(options.minAgeMs, (keys) => {
      // A stop need not wait for all of the store.
      stopped.signal.throwIfAborted();
      return knownKeys(pool, keys);
    });
    if (count > 0) log.warn({ count }, 'removed from the object store what nobody knew of');
  };
  const run = async () => {
    while (!stopped.signal.aborted) {
      await sweep().catch((error: unknown) => {
        if (!stopped.signal.aborted) log.warn({ err: error }, 'the object store was not swept, trying again');
      });
      await delay(options.everyMs, undefined, { signal: stopped.signal }).catch(() => {});
    }
  };
  const running = run();
  return {
    stop: async () => {
      stopped.abort();
      await running;
    },
  };
}
