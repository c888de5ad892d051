import type { Pool } from '@granary/shared/postgres/pool';
import { findCollection, type CollectionHandle } from './catalog';

/** Handles kept, at most; the oldest go first. */
const handlesMax = 10_000;
/** How long the absence or presence of a collection may be trusted without looking; writers check it under the lock. */
const freshMs = 500;

interface Entry {
  handle: Promise<CollectionHandle | undefined>;
  /** What `handle` gave. */
  found?: CollectionHandle | undefined;
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
    const entry: Entry = { handle: findCollection(this.pool, app, collection), atMs: Date.now() };
    this.put(key, entry);
    entry.handle.then(
      (found) => (entry.found = found),
      () => this.entries.get(key) === entry && this.entries.delete(key),
    );
    return entry.handle;
  }

  /**
   * The handle that is known here, whatever its age. For those who hold the lock of the head: they must not wait for
   * a second connection, which may be held by somebody who waits for that lock.
   */
  known(appNumber: bigint, collection: string): CollectionHandle | undefined {
    return this.entries.get(`${appNumber}/${collection}`)?.found;
  }

  /** Remembers a handle of the committed catalog. */
  keep(found: CollectionHandle): void {
    this.put(`${found.appNumber}/${found.name}`, { handle: Promise.resolve(found), found, atMs: Date.now() });
  }

  forget(appNumber: bigint, collection: string): void {
    this.entries.delete(`${appNumber}/${collection}`);
  }

  private put(key: string, entry: Entry): void {
    this.entries.delete(key);
    this.entries.set(key, entry);
    if (this.entries.size > handlesMax) this.entries.delete(this.entries.keys().next().value!);
  }
}
