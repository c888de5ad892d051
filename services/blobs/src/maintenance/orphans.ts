import { startScheduledTask } from '@granary/shared/postgres/scheduled-task';
import type { BlobsContext } from '../records/context';
import { knownKeys } from '../objects/objects';

/**
 * Garbage collection of objects and multipart uploads that crashes left in a shared store, periodically, on one replica
 * at a time, because it lists the whole store.
 */
export function startOrphanCollection(
  context: BlobsContext,
  options: { everyMs: number; minAgeMs: number },
): { stop(): Promise<void> } {
  const { store, pool, log, clock } = context;
  if (!store.sweep) return { stop: () => Promise.resolve() };
  const run = async (stopping: AbortSignal) => {
    const count = await store.sweep!(new Date(clock.now().getTime() - options.minAgeMs), (keys) => {
      // A stop does not wait for the end of the listing.
      stopping.throwIfAborted();
      return knownKeys(pool, keys);
    });
    if (count > 0) log.warn({ count }, 'removed unreferenced objects from the store');
  };
  return startScheduledTask({ pool, log, name: 'sweep', everyMs: options.everyMs, run });
}
