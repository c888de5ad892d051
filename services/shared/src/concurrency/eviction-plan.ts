/** A lease that an eviction may end; it may count for several holders. */
export interface Victim<V> {
  readonly amount: number;
  readonly touchedAtMs: number;
  readonly holders: ReadonlyArray<VictimHolder<V>>;
}

/** One key that holds a part of a budget. */
export interface VictimHolder<V> {
  /** The amount that eviction can give back. */
  readonly evictable: number;
  /** The power of two of `evictable`: see sizeClassOf(). */
  readonly sizeClass: number;
  /** The least recently touched first. */
  readonly leases: Iterable<V>;
}

/** The state of a holder after the choices that a plan has made so far. */
interface Progress<V> {
  evictable: number;
  sizeClass: number;
  readonly rest: Iterator<V>;
}

/** Class of holders of which nothing can be evicted. */
export const noSizeClass = -1;
/** Holders of one size that are tried for a victim, at most. */
const holdersTriedMax = 8;

export function sizeClassOf(evictable: number): number {
  return evictable > 0 ? Math.floor(Math.log2(evictable)) : noSizeClass;
}

/**
 * Chooses what to evict for one request, without evicting anything: only when all limits can be met is anything ended.
 * Costs constant time for each lease that is chosen or passed over.
 */
export class EvictionPlan<V extends Victim<V>> {
  /** The leases that were chosen, in the order in which they are to be evicted. */
  readonly victims = new Set<V>();
  /** The amount that the victims hold together. */
  freed = 0;
  private readonly progress = new Map<VictimHolder<V>, Progress<V>>();
  /** Holders of which something was chosen, by the power of two of what is left. */
  private readonly shrunk: Array<Set<VictimHolder<V>>> = [];

  /** `asking` is never chosen, and nothing that was touched after `touchedBeforeMs`. */
  constructor(
    private readonly asking: V,
    private readonly touchedBeforeMs: number,
  ) {}

  freedOf(holder: VictimHolder<V>): number {
    const progress = this.progress.get(holder);
    return progress ? holder.evictable - progress.evictable : 0;
  }

  /** Chooses the lease of a holder that was touched the longest time ago; false when there is none. */
  chooseFrom(holder: VictimHolder<V>): boolean {
    const { rest } = this.progressOf(holder);
    for (let next = rest.next(); next.done !== true; next = rest.next()) {
      const victim = next.value;
      if (victim === this.asking || this.victims.has(victim)) continue;
      // The leases behind it were touched later still.
      if (victim.touchedAtMs > this.touchedBeforeMs) return false;
      this.choose(victim);
      return true;
    }
    return false;
  }

  /** Chooses from a holder that holds most, up to a factor of two; false when none of those tried has a victim. */
  chooseFromLargest(bySizeClass: ReadonlyArray<ReadonlySet<VictimHolder<V>>>): boolean {
    for (let sizeClass = bySizeClass.length - 1; sizeClass >= 0; sizeClass -= 1) {
      let tries = holdersTriedMax;
      for (const holder of this.ofSize(sizeClass, bySizeClass)) {
        if (this.chooseFrom(holder)) return true;
        tries -= 1;
        if (tries === 0) break;
      }
    }
    return false;
  }

  private *ofSize(
    sizeClass: number,
    bySizeClass: ReadonlyArray<ReadonlySet<VictimHolder<V>>>,
  ): Generator<VictimHolder<V>> {
    yield* this.shrunk[sizeClass] ?? [];
    for (const holder of bySizeClass[sizeClass]!) {
      const progress = this.progress.get(holder);
      if (progress === undefined || progress.sizeClass === sizeClass) yield holder;
    }
  }

  private choose(victim: V): void {
    this.victims.add(victim);
    this.freed += victim.amount;
    for (const holder of victim.holders) {
      const progress = this.progressOf(holder);
      progress.evictable -= victim.amount;
      const sizeClass = sizeClassOf(progress.evictable);
      if (sizeClass === progress.sizeClass) continue;
      this.shrunk[progress.sizeClass]?.delete(holder);
      progress.sizeClass = sizeClass;
      if (sizeClass !== noSizeClass) (this.shrunk[sizeClass] ??= new Set()).add(holder);
    }
  }

  private progressOf(holder: VictimHolder<V>): Progress<V> {
    let progress = this.progress.get(holder);
    if (!progress) {
      const { evictable, sizeClass, leases } = holder;
      this.progress.set(holder, (progress = { evictable, sizeClass, rest: leases[Symbol.iterator]() }));
    }
    return progress;
  }
}
