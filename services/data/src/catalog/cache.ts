import { setBounded } from '@granary/shared/concurrency/bounded-map';
import type { Pool } from '@granary/shared/postgres/pool';
import { findApp, findCollection, type CollectionRef } from './collection';

/** Handles kept, at most; the oldest go first. */
const handlesMax = 10_000;
/** How long the absence or presence of a collection may be trusted without looking; writers check it under the lock. */
const freshMs = 500;

interface Entry {
  handle: Promise<CollectionRef | undefined>;
  /** What `handle` gave, and before that what the look-up before it gave. */
  found?: CollectionRef | undefined;
  atMs: number;
}

/**
 * Handles of collections for writers, who learn under the lock of the app's head whether the catalog has moved on
 * since.
 */
export class CatalogCache {
  private readonly entries = new Map<string, Entry>();

  constructor(private readonly pool: Pool) {}

  get(app: { number: bigint; appId: string }, collection: string): Promise<CollectionRef | undefined> {
    const key = `${app.number}/${collection}`;
    const known = this.entries.get(key);
    if (known && performance.now() - known.atMs < freshMs) return known.handle;
    const handle = findCollection(this.pool, app, collection);
    const entry: Entry = { handle, found: known?.found, atMs: performance.now() };
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
  known(appNumber: bigint, collection: string): CollectionRef | undefined {
    return this.entries.get(`${appNumber}/${collection}`)?.found;
  }

  /** Remembers a handle of the committed catalog. */
  keep(found: CollectionRef): void {
    this.put(`${found.appNumber}/${found.name}`, { handle: Promise.resolve(found), found, atMs: performance.now() });
  }

  forget(appNumber: bigint, collection: string): void {
    this.entries.delete(`${appNumber}/${collection}`);
  }

  private put(key: string, entry: Entry): void {
    setBounded(this.entries, key, entry, handlesMax);
  }
}

/** How old may be what a reader gets: another copy's change of the catalog is seen after as long. */
const readerFreshMs = 250;
/** What is asked for at this age is looked up again meanwhile, so that nobody waits where reads keep coming. */
const renewAfterMs = 150;

interface Found<T> {
  found: Promise<T | undefined>;
  /** When its look-up began. */
  atMs: number;
  /** A look-up is under way that will take its place. */
  isRenewing: boolean;
}

/** A look-up under way, and the one that begins after it. */
interface LookUp<T> {
  found: Promise<T | undefined>;
  next: Promise<T | undefined> | undefined;
}

/**
 * What readers looked up lately, by app and name, so that a read is one statement. This process forgets what it
 * changes itself; counters may be old, so whoever answers with those looks again.
 */
export class Recent<T> {
  private readonly entries = new Map<string, Found<T>>();
  private readonly lookUps = new Map<string, LookUp<T>>();

  /** `find` gives undefined for what is not there. */
  constructor(
    private readonly find: (appId: string, name: string) => Promise<T | undefined>,
    private readonly now: () => number = () => performance.now(),
  ) {}

  /** Throws what `find` throws. */
  get(appId: string, name: string): Promise<T | undefined> {
    const key = `${appId}/${name}`;
    const nowMs = this.now();
    const known = this.entries.get(key);
    const ageMs = known ? nowMs - known.atMs : Infinity;
    if (!known || ageMs >= readerFreshMs) return this.keep(key, this.find(appId, name), nowMs);
    if (ageMs >= renewAfterMs && !known.isRenewing) this.renew(key, known, this.find(appId, name), nowMs);
    return known.found;
  }

  /**
   * As it is now: by a look-up that begins after the call. Those who come during one share the next, so that many of
   * them do not hold up the look-ups of others. Throws what `find` throws.
   */
  getNow(appId: string, name: string): Promise<T | undefined> {
    const key = `${appId}/${name}`;
    const lookUp = () => this.lookUp(key, appId, name);
    const current = this.lookUps.get(key);
    return current ? (current.next ??= current.found.then(lookUp, lookUp)) : lookUp();
  }

  /** After a change of an app's catalog, and before a read that found it wanting is tried again. */
  forget(appId: string): void {
    const prefix = `${appId}/`;
    for (const key of this.entries.keys()) if (key.startsWith(prefix)) this.entries.delete(key);
  }

  private keep(key: string, found: Promise<T | undefined>, atMs: number): Promise<T | undefined> {
    const entry = { found, atMs, isRenewing: false };
    setBounded(this.entries, key, entry, handlesMax);
    // What is not there may be made at any moment, by any write.
    const forget = () => this.entries.get(key) === entry && this.entries.delete(key);
    found.then((value) => value ?? forget(), forget);
    return found;
  }

  private renew(key: string, known: Found<T>, found: Promise<T | undefined>, atMs: number): void {
    known.isRenewing = true;
    found.then(
      // Unless it was forgotten meanwhile: then this may be what is out of date.
      () => void (this.entries.get(key) === known && this.keep(key, found, atMs)),
      () => (known.isRenewing = false),
    );
  }

  private lookUp(key: string, appId: string, name: string): Promise<T | undefined> {
    const current: LookUp<T> = { found: this.find(appId, name), next: undefined };
    this.lookUps.set(key, current);
    const over = () => this.lookUps.get(key) === current && this.lookUps.delete(key);
    current.found.then(over, over);
    return current.found;
  }
}

/** Handles of collections for readers. `get` throws APP_NOT_FOUND. */
export type ReaderCache = Recent<CollectionRef>;

export const readerCache = (pool: Pool): ReaderCache =>
  new Recent(async (appId, name) => findCollection(pool, await findApp(pool, appId), name));
