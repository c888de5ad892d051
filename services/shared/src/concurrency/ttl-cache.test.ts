import { FreshLoads, TtlCache, type TtlCacheOptions } from './ttl-cache';

let nowMs = 0;
beforeEach(() => {
  nowMs = 0;
});

const settle = () => new Promise((resolve) => setImmediate(resolve));

/** Loads that end on demand; each resolves to its number. */
function loads() {
  const waiting: Array<{ resolve: (found: number | undefined) => void; reject: (error: Error) => void }> = [];
  let begun = 0;
  return {
    load: () => {
      begun += 1;
      return new Promise<number | undefined>((resolve, reject) => waiting.push({ resolve, reject }));
    },
    begun: () => begun,
    end: async (number?: number) => {
      waiting.shift()!.resolve(number);
      await settle();
    },
    fail: async () => {
      waiting.shift()!.reject(new Error('no'));
      await settle();
    },
  };
}

function cacheOf(options: Partial<TtlCacheOptions> = {}) {
  const { load, ...rest } = loads();
  const times = { ttlMs: 250, refreshAfterMs: 150 };
  const cache = new TtlCache<number>({ max: 100, ...times, ...options }, () => nowMs);
  return { cache, get: (key = 'a/c') => cache.get(key, load), ...rest };
}

test('a value that is requested often is refreshed before it expires, and no request waits for that', async () => {
  const { get, begun, end } = cacheOf();
  const first = get();
  await end(1);
  expect(await first).toBe(1);
  nowMs = 149;
  expect(await get()).toBe(1);
  expect(begun()).toBe(1);
  nowMs = 150;
  expect(await get()).toBe(1);
  expect(await get()).toBe(1);
  expect(begun()).toBe(2);
  nowMs = 200;
  await end(2);
  expect(await get()).toBe(2);
  // Its age counts from the start of its load, so it is refreshed at 300.
  nowMs = 299;
  expect(await get()).toBe(2);
  expect(begun()).toBe(2);
});

test('no value is older than its time to live, also when its refresh is slow or fails', async () => {
  const { get, begun, end, fail } = cacheOf();
  const first = get();
  await end(1);
  await first;
  nowMs = 150;
  await get();
  await fail();
  expect(await get()).toBe(1);
  expect(begun()).toBe(3);
  nowMs = 250;
  const late = get();
  expect(begun()).toBe(4);
  // The refresh is older than the load that replaced it, and changes nothing.
  await end(3);
  await end(4);
  expect(await late).toBe(4);
  expect(await get()).toBe(4);
});

test('a deleted value does not return by a refresh that began before', async () => {
  const { cache, get, begun, end } = cacheOf();
  const first = get();
  await end(1);
  await first;
  nowMs = 150;
  await get();
  cache.deletePrefix('a/');
  await end(2);
  const anew = get();
  expect(begun()).toBe(3);
  await end(3);
  expect(await anew).toBe(3);
});

test('concurrent requests share a load, and a failed load is not cached', async () => {
  const { get, begun, end, fail } = cacheOf();
  const failed = [get(), get()].map((found) => expect(found).rejects.toThrow('no'));
  expect(begun()).toBe(1);
  await fail();
  await Promise.all(failed);
  const found = [get(), get(), get('a/d')];
  expect(begun()).toBe(3);
  await end(2);
  await end(3);
  expect(await Promise.all(found)).toEqual([2, 2, 3]);
});

test('what does not exist is cached for a time of its own, or not at all', async () => {
  const { get, begun, end } = cacheOf({ refreshAfterMs: Infinity, negativeTtlMs: 100 });
  const first = get();
  await end();
  expect(await first).toBeUndefined();
  nowMs = 99;
  expect(await get()).toBeUndefined();
  expect(begun()).toBe(1);
  nowMs = 100;
  void get();
  expect(begun()).toBe(2);

  const uncached = cacheOf({ negativeTtlMs: 0 });
  void uncached.get();
  await uncached.end();
  void uncached.get();
  expect(uncached.begun()).toBe(2);
});

test('the last value can be read at any age and while it is loaded again, and a value that is set counts as loaded', async () => {
  const { cache, get, begun, end } = cacheOf();
  expect(cache.peek('a/c')).toBeUndefined();
  cache.set('a/c', 7);
  expect([await get(), begun()]).toEqual([7, 0]);
  nowMs = 1_000;
  expect(cache.peek('a/c')).toBe(7);
  const loading = get();
  expect(cache.peek('a/c')).toBe(7);
  await end(8);
  expect([await loading, cache.peek('a/c')]).toEqual([8, 8]);
});

test('the least recently used entry is evicted', async () => {
  const { cache, get } = cacheOf({ max: 2 });
  cache.set('a', 1);
  cache.set('b', 2);
  await get('a');
  cache.set('c', 3);
  expect(['a', 'b', 'c'].map((key) => cache.peek(key))).toEqual([1, undefined, 3]);
});

test('a fresh load begins after the call, and is shared with those who called meanwhile', async () => {
  const { load, begun, end, fail } = loads();
  const fresh = new FreshLoads<number | undefined>();
  const get = (key = 'a/c') => fresh.get(key, load);
  const first = get();
  const others = [get(), get()];
  const elsewhere = get('b/c');
  expect(begun()).toBe(2);
  await end(1);
  await end(2);
  expect([await first, await elsewhere]).toEqual([1, 2]);
  expect(begun()).toBe(3);
  const last = get();
  const failures = others.map((other) => expect(other).rejects.toThrow('no'));
  await fail();
  await Promise.all(failures);
  expect(begun()).toBe(4);
  await end(4);
  expect(await last).toBe(4);
  const after = get();
  expect(begun()).toBe(5);
  await end();
  expect(await after).toBeUndefined();
});
