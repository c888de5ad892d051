import { FreshLoads, TtlCache } from '@granary/shared/concurrency/ttl-cache';
import type { Pool } from '@granary/shared/postgres/pool';
import { findCollection, type CollectionRef } from './collection';
import { findApp, type App } from './app';

/** Entries of each cache. */
const entriesMax = 10_000;
/**
 * The greatest age of entries for writers, of an absent collection too: they check both under the lock of the app's
 * head.
 */
const writerTtlMs = 500;
/** The greatest age of entries for readers. A change of the catalog by another process is visible no later. */
const readerTtlMs = 250;
/**
 * A read of an entry of this age loads it again in the background, so that no read waits for the catalog under load.
 */
const readerRefreshAfterMs = 150;

/** Collections for writers, who learn under the lock of the app's head whether the catalog has changed since. */
export class CatalogCache {
  private readonly cache = new TtlCache<CollectionRef>({ max: entriesMax, ttlMs: writerTtlMs });

  constructor(private readonly pool: Pool) {}

  get(app: App, collection: string): Promise<CollectionRef | undefined> {
    return this.cache.get(`${app.number}/${collection}`, () => findCollection(this.pool, app, collection));
  }

  /**
   * Returns the cached collection, however old it is, to a holder of the lock of the head. Such a caller must not wait
   * for a second connection: whoever holds that connection may wait for the lock, which would be a deadlock.
   */
  peek(appNumber: bigint, collection: string): CollectionRef | undefined {
    return this.cache.peek(`${appNumber}/${collection}`);
  }

  /** Caches a collection of the committed catalog. */
  keep(found: CollectionRef): void {
    this.cache.set(`${found.appNumber}/${found.name}`, found);
  }

  forget(appNumber: bigint, collection: string): void {
    this.cache.delete(`${appNumber}/${collection}`);
  }
}

/**
 * Entries of the catalog that readers look up by app and name, cached so that a read is one statement. This process
 * deletes the entries that it changes itself. A response that contains counters uses `getFresh`, because those of a
 * cached entry may be old.
 */
export class LookupCache<T> {
  private readonly cache: TtlCache<T>;
  private readonly fresh = new FreshLoads<T | undefined>();

  /** `find` resolves to undefined for what does not exist. */
  constructor(
    private readonly find: (appId: string, name: string) => Promise<T | undefined>,
    now?: () => number,
  ) {
    const times = { ttlMs: readerTtlMs, refreshAfterMs: readerRefreshAfterMs };
    // Absence is not cached: any write may create the missing entry at any moment.
    this.cache = new TtlCache({ max: entriesMax, ...times, negativeTtlMs: 0 }, now);
  }

  /** Rejects as `find` does. */
  get(appId: string, name: string): Promise<T | undefined> {
    return this.cache.get(`${appId}/${name}`, () => this.find(appId, name));
  }

  /** The result of a look-up that begins after the call. Rejects as `find` does. */
  getFresh(appId: string, name: string): Promise<T | undefined> {
    return this.fresh.get(`${appId}/${name}`, () => this.find(appId, name));
  }

  /**
   * Forgets the entries of an app. Call it after a change of its catalog, and before a retry of a read that such a
   * change has made fail.
   */
  forget(appId: string): void {
    this.cache.deletePrefix(`${appId}/`);
  }
}

/** Collections for readers. `get` rejects with APP_NOT_FOUND. */
export type ReaderCache = LookupCache<CollectionRef>;

export const readerCache = (pool: Pool): ReaderCache =>
  new LookupCache(async (appId, name) => findCollection(pool, await findApp(pool, appId), name));
