import { FreshLoads, TtlCache } from '@granary/shared/concurrency/ttl-cache';
import type { Pool } from '@granary/shared/postgres/pool';
import { findCollection, type CollectionRef } from './collection';
import { findApp, type App } from './app';

/** Entries of each cache. */
const entriesMax = 10_000;
/** How old what writers use may be, the absence of a collection too: they check it under the lock of the app's head. */
const writerTtlMs = 500;
/** How old what readers use may be: a change of the catalog by another process is visible after as long. */
const readerTtlMs = 250;
/**
 * An entry that is read at this age is loaded again in the background, so that no read waits for the catalog under
 * load.
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
   * The cached collection, however old it is. It is for holders of the lock of the head: waiting for a second
   * connection could be a deadlock, because its holder may wait for that lock.
   */
  known(appNumber: bigint, collection: string): CollectionRef | undefined {
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
 * deletes the entries that it changes itself. Counters in an entry may be old: a response that contains them uses
 * `getFresh`.
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

  /** Forgets the entries of an app, after a change of its catalog and before a retry of a read that failed by it. */
  forget(appId: string): void {
    this.cache.deletePrefix(`${appId}/`);
  }
}

/** Collections for readers. `get` rejects with APP_NOT_FOUND. */
export type ReaderCache = LookupCache<CollectionRef>;

export const readerCache = (pool: Pool): ReaderCache =>
  new LookupCache(async (appId, name) => findCollection(pool, await findApp(pool, appId), name));
