import { LRUCache } from 'lru-cache';
import type { LockedHead } from './head';

/** Apps whose heads are cached. */
const headsMax = 10_000;
/** After another replica has moved a head, so many locked commits in a row must find it unmoved. */
const unmovedMin = 8;

interface CachedHead {
  /** Undefined after a commit that does not know the revision of the catalog that it left. */
  head: LockedHead | undefined;
  /** Locked commits in a row that found the head where the last commit of this replica had left it. */
  unmovedCount: number;
}

/** The heads of apps after their last commits, to plan the next ones with; Postgres compares them under the lock. */
export class HeadCache {
  private readonly apps = new LRUCache<bigint, CachedHead>({ max: headsMax });

  /**
   * The head that the next commit should find. Undefined where another replica writes to the app too: a failed
   * comparison costs a commit its place in the queue for the lock.
   */
  expected(appNumber: bigint): LockedHead | undefined {
    const app = this.apps.get(appNumber);
    return app && app.unmovedCount >= unmovedMin ? app.head : undefined;
  }

  /** The head as this replica last saw it, whoever else writes to the app; undefined when it is unknown. */
  latest(appNumber: bigint): LockedHead | undefined {
    return this.apps.get(appNumber)?.head;
  }

  /** Records a head that was read under its lock. */
  observed(appNumber: bigint, head: LockedHead): void {
    const app = this.apps.get(appNumber);
    if (!app) this.set(appNumber, head, unmovedMin);
    else if (app.head) this.set(appNumber, head, isSame(app.head, head) ? app.unmovedCount + 1 : 0);
    else this.set(appNumber, head, app.unmovedCount);
  }

  /** Records the head after a commit of this replica; undefined when its catalog revision is unknown. */
  committed(appNumber: bigint, head: LockedHead | undefined): void {
    this.set(appNumber, head, this.apps.get(appNumber)?.unmovedCount ?? unmovedMin);
  }

  private set(appNumber: bigint, head: LockedHead | undefined, unmovedCount: number): void {
    this.apps.set(appNumber, { head: head && withoutIds(head), unmovedCount });
  }
}

/** The head may be a link, with the ids of its documents: those are not kept. */
const withoutIds = ({ height, ordinal, hash, catalogRevision }: LockedHead): LockedHead => ({
  height,
  ordinal,
  hash,
  catalogRevision,
});

const isSame = (a: LockedHead, b: LockedHead): boolean =>
  a.height === b.height && a.catalogRevision === b.catalogRevision && a.hash.equals(b.hash);
