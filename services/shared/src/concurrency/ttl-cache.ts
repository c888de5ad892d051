import { LRUCache } from 'lru-cache';

export interface TtlCacheOptions {
  /** Entries; beyond, the least recently used one is evicted. */
  max: number;
  /** How old a value may be, from the start of its load. */
  ttlMs: number;
  /** A value that is requested at this age is loaded again in the background. Default: never. */
  refreshAfterMs?: number;
  /** How old `undefined`, the result for what does not exist, may be. Default: `ttlMs`; 0: it is not cached. */
  negativeTtlMs?: number;
}

interface Entry<V> {
  readonly value: Promise<V | undefined>;
  /** The time at which the load of the entry began. */
  readonly atMs: number;
  /** The result of the load, and until there is one, that of the load before. */
  last: V | undefined;
  /** Undefined while it is loading. */
  isFound: boolean | undefined;
  isRefreshing: boolean;
}

/**
 * A cache of what is loaded asynchronously, bounded in age and number. Concurrent requests for a key share one load; a
 * load that fails is not cached, nor is one that was overtaken by `set` or `delete`. With `refreshAfterMs` a value that
 * is requested often is replaced before it expires, so that no request waits for a load (stale-while-revalidate);
 * `ttlMs` remains the bound on its age. For entries that do not expire use `LRUCache` itself.
 *
 * `get` returns the promise of the cached entry: a hit allocates nothing.
 */
export class TtlCache<V> {
  private readonly entries: LRUCache<string, Entry<V>>;
  private readonly ttlMs: number;
  private readonly refreshAfterMs: number;
  private readonly negativeTtlMs: number;

  constructor(
    { max, ttlMs, refreshAfterMs = Infinity, negativeTtlMs = ttlMs }: TtlCacheOptions,
    private readonly now: () => number = () => performance.now(),
  ) {
    this.entries = new LRUCache({ max });
    this.ttlMs = ttlMs;
    this.refreshAfterMs = refreshAfterMs;
    this.negativeTtlMs = negativeTtlMs;
  }

  /** The cached value, or what `load` resolves to; it is called when there is none. Rejects as `load` does. */
  get(key: string, load: () => Promise<V | undefined>): Promise<V | undefined> {
    const nowMs = this.now();
    const entry = this.entries.get(key);
    if (entry !== undefined) {
      const ageMs = nowMs - entry.atMs;
      if (ageMs < (entry.isFound === false ? this.negativeTtlMs : this.ttlMs)) {
        if (ageMs >= this.refreshAfterMs && !entry.isRefreshing) this.refresh(key, entry, load, nowMs);
        return entry.value;
      }
    }
    return this.keep(key, load(), nowMs, entry?.last).value;
  }

  /** The value that was loaded or set last, however old it is; undefined when there is none. Loads nothing. */
  peek(key: string): V | undefined {
    return this.entries.peek(key)?.last;
  }

  /** Caches a value that is known to be current. */
  set(key: string, value: V): void {
    const entry: Entry<V> = {
      value: Promise.resolve(value),
      atMs: this.now(),
      last: value,
      isFound: true,
      isRefreshing: false,
    };
    this.entries.set(key, entry);
  }

  delete(key: string): void {
    this.entries.delete(key);
  }

  /** Deletes the entries whose keys begin so. Takes time in proportion to the size of the cache. */
  deletePrefix(prefix: string): void {
    for (const key of [...this.entries.keys()]) if (key.startsWith(prefix)) this.entries.delete(key);
  }

  private keep(key: string, value: Promise<V | undefined>, atMs: number, last: V | undefined): Entry<V> {
    const entry: Entry<V> = { value, atMs, last, isFound: undefined, isRefreshing: false };
    this.entries.set(key, entry);
    value.then(
      (result) => {
        entry.last = result;
        entry.isFound = result !== undefined;
        if (!entry.isFound && this.negativeTtlMs === 0) this.deleteEntry(key, entry);
      },
      () => this.deleteEntry(key, entry),
    );
    return entry;
  }

  private refresh(key: string, entry: Entry<V>, load: () => Promise<V | undefined>, atMs: number): void {
    entry.isRefreshing = true;
    const value = load();
    value.then(
      // An entry that was deleted or replaced meanwhile is newer than this load may be.
      () => void (this.entries.peek(key) === entry && this.keep(key, value, atMs, entry.last)),
      () => (entry.isRefreshing = false),
    );
  }

  private deleteEntry(key: string, entry: Entry<V>): void {
    if (this.entries.peek(key) === entry) this.entries.delete(key);
  }
}

/**
 * A function that calls `load` at most once every `ttlMs`, and whose callers share the result, or the error, of the
 * last call.
 */
export function cachedFor<T>(ttlMs: number, load: () => Promise<T>): () => Promise<T> {
  let result: Promise<T> | undefined;
  let atMs = -Infinity;
  return () => {
    const nowMs = performance.now();
    if (!result || nowMs - atMs > ttlMs) {
      atMs = nowMs;
      result = load();
    }
    return result;
  };
}

/**
 * Loads that must not be older than the call: each caller gets the result of a load that began after it called. Those
 * who call during a load share the next one, so at most one load of a key is under way.
 */
export class FreshLoads<V> {
  private readonly loads = new Map<string, { value: Promise<V>; next: Promise<V> | undefined }>();

  /** Rejects as `load` does. */
  get(key: string, load: () => Promise<V>): Promise<V> {
    const current = this.loads.get(key);
    if (!current) return this.begin(key, load);
    const begin = () => this.begin(key, load);
    return (current.next ??= current.value.then(begin, begin));
  }

  private begin(key: string, load: () => Promise<V>): Promise<V> {
    const current = { value: load(), next: undefined };
    this.loads.set(key, current);
    const end = () => void (this.loads.get(key) === current && this.loads.delete(key));
    current.value.then(end, end);
    return current.value;
  }
}
