import { setBounded } from '@granary/shared/concurrency/bounded-map';
import type { LockedHead } from './head';

/** Apps whose heads are remembered, at most; the oldest go first. */
const headsMax = 10_000;
/** After somebody else has moved a head, so many commits in a row must find it where it was left before it is foreseen. */
const trustedAfter = 8;

interface Foreseen {
  /** Where the last commit of this copy left the head; undefined when that is not known. */
  head: LockedHead | undefined;
  /** Commits in a row that found the head where it was left. */
  found: number;
}

/**
 * The heads of apps as the next commit of this copy will find them, as long as no other copy moves them too. Only a
 * forecast: whoever builds on it lets Postgres compare it under the lock.
 */
export class ForeseenHeads {
  private readonly apps = new Map<bigint, Foreseen>();

  /** Undefined where others are at work as well: a forecast that fails costs its commit the turn at the lock. */
  of(appNumber: bigint): LockedHead | undefined {
    const app = this.apps.get(appNumber);
    return app && app.found >= trustedAfter ? app.head : undefined;
  }

  /** Where the last commit of this copy left the head, or found it; undefined when that is not known. */
  last(appNumber: bigint): LockedHead | undefined {
    return this.apps.get(appNumber)?.head;
  }

  /** The head was found so, under its lock. */
  found(appNumber: bigint, head: LockedHead): void {
    const app = this.apps.get(appNumber);
    if (!app) this.set(appNumber, { head, found: trustedAfter });
    else if (app.head) this.set(appNumber, { head, found: isSame(app.head, head) ? app.found + 1 : 0 });
    else this.set(appNumber, { head, found: app.found });
  }

  /** A commit of this copy left the head so; undefined when it does not know. */
  left(appNumber: bigint, head: LockedHead | undefined): void {
    this.set(appNumber, { head, found: this.apps.get(appNumber)?.found ?? trustedAfter });
  }

  private set(appNumber: bigint, { head, found }: Foreseen): void {
    setBounded(this.apps, appNumber, { head: head && bare(head), found }, headsMax);
  }
}

/** A head may be a link, with the ids of what it stored: those are not kept. */
const bare = ({ height, ordinal, hash, catalogRevision }: LockedHead): LockedHead => ({
  height,
  ordinal,
  hash,
  catalogRevision,
});

const isSame = (a: LockedHead, b: LockedHead): boolean =>
  a.height === b.height && a.catalogRevision === b.catalogRevision && a.hash.equals(b.hash);
