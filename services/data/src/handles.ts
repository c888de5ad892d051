import type { Pool } from '@granary/shared/postgres/pool';
import { findCollection, type CollectionHandle } from './catalog';

/** Handles kept, at most; the oldest go first. */
const handlesMax = 10_000;
/** How long the absence or presence of a collection may be trusted without looking; writers check it under the lock. */
const freshMs = 500;

interface Entry {
  handle: Promise<CollectionHandle | undefined>;
  atMs: number;
}

/**
 * Handles of collections for writers, who learn under the lock of the app's head whether the catalog has moved on
 * since. Readers look their handle up each time: its counters must be those of the last commit.
 */
export class WriterHandles {
  private readonly entries = new Map<string, Entry>();

  constructor(private readonly pool: Pool) {}

  get(app: { number: bigint; appId: string }, collection: string): Promise<CollectionHandle | undefined> {
    const key = `${app.number}/${collection}`;
    const known = this.entries.get(key);
    if (known && Date.now() - known.atMs < freshMs) return known.handle;
    const handle = findCollection(this.pool, app, collection);
    this.entries.delete(key);
    this.entries.set(key, { handle, atMs: Date.now() });
    handle.catch(() => this.entries.delete(key));
    if (this.entries.size > handlesMax) this.entries.delete(this.entries.keys().next().value!);
    return handle;
  }

  forget(appNumber: bigint, collection: string): void {
    this.entries.delete(`${appNumber}/${collection}`);
  }
}
