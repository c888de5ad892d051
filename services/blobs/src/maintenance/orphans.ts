import { startChore } from '@granary/shared/postgres/scheduled-task';
import type { BlobsContext } from '../records/context';
import { knownKeys } from '../objects/objects';

/**
 * Removes what crashes left in a store that several processes share, every so often, until it is stopped. One copy of the
 * service at a time does so, for it lists all of the store.
 */
export function startSweeping(
  context: BlobsContext,
  options: { everyMs: number; minAgeMs: number },
): { stop(): Promise<void> } {
  const { store, pool, log, clock } = context;
  if (!store.sweep) return { stop: () => Promise.resolve() };
  const run = async (stopping: AbortSignal) => {
    const count = await store.sweep!(new Date(clock.now().getTime() - options.minAgeMs), (keys) => {
      // A stop need not wait for all of the store.
      stopping.throwIfAborted();
      return knownKeys(pool, keys);
    });
    if (count > 0) log.warn({ count }, 'removed from the object store what nobody knew of');
  };
  return startChore({ pool, log, name: 'sweep', everyMs: options.everyMs, run });
}
