import { EvictionPlan, noSizeClass, sizeClassOf } from './eviction-plan';

/** Limits of one resource. All amounts have the same unit: bytes, or places. */
export interface KeyedBudgetLimits<Dimension extends string> {
  /** The limit of all leases together. */
  total: number;
  /** The limit of all leases of one key, for each dimension: `{ app: 64, address: 128 }`. */
  perKey: Readonly<Record<Dimension, number>>;
  /** A lease is evicted only when it was not touched for so long. Default 0: at any time. */
  evictAfterIdleMs?: number;
}

/** The keys of a lease. A dimension that is left out does not limit it. */
export type BudgetKeys<Dimension extends string> = Readonly<Partial<Record<Dimension, string>>>;

export interface KeyedBudgetCounts {
  used: number;
  total: number;
  /** Leases evicted since the start. */
  evicted: number;
}

/** One key of one dimension that holds a part of the budget. */
interface Holder {
  readonly holders: Map<string, Holder>;
  readonly key: string;
  readonly max: number;
  /** Leases that are open, evictable or not. */
  leaseCount: number;
  used: number;
  /** The part of `used` that eviction can give back. */
  evictable: number;
  /** The leases that hold something and can be evicted, the least recently touched first. */
  readonly leases: Set<BudgetLease>;
  sizeClass: number;
}

/** A part of the budget, which may grow and shrink until it is released. Made by `KeyedBudget.open`. */
export class BudgetLease {
  amount = 0;
  isOpen = true;
  isEvictable: boolean;
  touchedAtMs = 0;

  constructor(
    private readonly budget: LeaseOwner,
    readonly holders: readonly Holder[],
    readonly onEvict: (() => void) | undefined,
  ) {
    this.isEvictable = onEvict !== undefined;
  }

  /**
   * Takes `amount` more and touches the lease; false when it cannot be had, or the lease is closed. `keepFree` is the
   * part of the total that this request leaves for others.
   */
  tryTake(amount: number, keepFree = 0): boolean {
    return this.budget.take(this, amount, keepFree);
  }

  /** Gives a part back. */
  give(amount: number): void {
    if (this.isOpen) this.budget.change(this, -amount);
  }

  /** Records progress: among the leases of a key the one that was touched the longest time ago is evicted first. */
  touch(): void {
    if (this.isOpen) this.budget.touch(this);
  }

  /** Exempts the lease from eviction. */
  pin(): void {
    if (this.isOpen) this.budget.pin(this);
  }

  /** Gives everything back. May be called again, and after an eviction. */
  release(): void {
    if (this.isOpen) this.budget.close(this);
  }
}

/** The operations that a lease asks of its budget. */
interface LeaseOwner {
  take(lease: BudgetLease, amount: number, keepFree: number): boolean;
  change(lease: BudgetLease, amount: number): void;
  touch(lease: BudgetLease): void;
  pin(lease: BudgetLease): void;
  close(lease: BudgetLease): void;
}

/**
 * A budget with a limit in total and one for each key, in several dimensions at once, such as the application and the
 * address of a client. Where it is full, it evicts rather than refuses: within a key that is at its limit the lease
 * that was touched the longest time ago, and where the total is used up, that of the key that holds most. Holders are
 * kept by the power of two of what they hold, so "most" is exact up to a factor of two, and every operation takes
 * constant time (an eviction for each lease that is evicted). A request that cannot be met evicts nothing.
 */
export class KeyedBudget<Dimension extends string> implements LeaseOwner {
  private used = 0;
  private evictable = 0;
  private evicted = 0;
  private readonly dimensions: ReadonlyArray<{ name: Dimension; max: number; holders: Map<string, Holder> }>;
  /** The holders, by the power of two of what can be evicted of them. */
  private readonly bySizeClass: Array<Set<Holder>> = [];
  private readonly evictAfterIdleMs: number;

  constructor(
    private readonly limits: KeyedBudgetLimits<Dimension>,
    private readonly now: () => number = () => performance.now(),
  ) {
    this.dimensions = Object.entries<number>(limits.perKey).map(([name, max]) => ({
      name: name as Dimension,
      max,
      holders: new Map(),
    }));
    this.evictAfterIdleMs = limits.evictAfterIdleMs ?? 0;
  }

  /**
   * Opens a lease that holds nothing yet; it must be released. `onEvict` is called once if the lease is evicted, when
   * its part is already given back: it ends the work, at once. A lease without it is never evicted.
   */
  open(keys: BudgetKeys<Dimension>, onEvict?: () => void): BudgetLease {
    const holders: Holder[] = [];
    for (const { name, max, holders: ofDimension } of this.dimensions) {
      const key = keys[name];
      if (key === undefined) continue;
      let holder = ofDimension.get(key);
      if (!holder) {
        holder = {
          holders: ofDimension,
          key,
          max,
          leaseCount: 0,
          used: 0,
          evictable: 0,
          leases: new Set(),
          sizeClass: noSizeClass,
        };
        ofDimension.set(key, holder);
      }
      holder.leaseCount += 1;
      holders.push(holder);
    }
    const lease = new BudgetLease(this, holders, onEvict);
    if (this.evictAfterIdleMs > 0) lease.touchedAtMs = this.now();
    return lease;
  }

  counts(): KeyedBudgetCounts {
    return { used: this.used, total: this.limits.total, evicted: this.evicted };
  }

  /** The amount that the leases of a key hold together. */
  usedBy(dimension: Dimension, key: string): number {
    return this.dimensions.find(({ name }) => name === dimension)?.holders.get(key)?.used ?? 0;
  }

  take(lease: BudgetLease, amount: number, keepFree: number): boolean {
    if (!lease.isOpen) return false;
    this.touch(lease);
    const limit = this.limits.total - keepFree;
    if (this.used + amount <= limit && lease.holders.every((holder) => holder.used + amount <= holder.max)) {
      this.change(lease, amount);
      return true;
    }
    const victims = this.chooseVictims(lease, amount, limit);
    if (!victims) return false;
    for (const victim of victims) this.close(victim);
    this.change(lease, amount);
    this.evicted += victims.size;
    for (const victim of victims) victim.onEvict!();
    return true;
  }

  change(lease: BudgetLease, amount: number): void {
    const held = lease.amount;
    lease.amount += amount;
    this.used += amount;
    if (lease.isEvictable) this.evictable += amount;
    for (const holder of lease.holders) {
      holder.used += amount;
      if (!lease.isEvictable) continue;
      if (held === 0) holder.leases.add(lease);
      else if (lease.amount === 0) holder.leases.delete(lease);
      holder.evictable += amount;
      this.classify(holder);
    }
  }

  touch(lease: BudgetLease): void {
    if (!lease.isEvictable) return;
    if (this.evictAfterIdleMs > 0) lease.touchedAtMs = this.now();
    for (const { leases } of lease.holders) {
      if (leases.size > 1 && leases.delete(lease)) leases.add(lease);
    }
  }

  pin(lease: BudgetLease): void {
    if (!lease.isEvictable) return;
    lease.isEvictable = false;
    this.evictable -= lease.amount;
    for (const holder of lease.holders) {
      holder.leases.delete(lease);
      holder.evictable -= lease.amount;
      this.classify(holder);
    }
  }

  close(lease: BudgetLease): void {
    if (lease.amount > 0) this.change(lease, -lease.amount);
    lease.isOpen = false;
    for (const holder of lease.holders) {
      holder.leaseCount -= 1;
      if (holder.leaseCount === 0) holder.holders.delete(holder.key);
    }
  }

  /** The leases to evict so that `lease` can take `amount` more; undefined where it finds too few. */
  private chooseVictims(lease: BudgetLease, amount: number, limit: number): ReadonlySet<BudgetLease> | undefined {
    const evictableAmount = lease.isEvictable ? lease.amount : 0;
    if (this.used - (this.evictable - evictableAmount) + amount > limit) return undefined;
    if (lease.holders.some(({ used, evictable, max }) => used - (evictable - evictableAmount) + amount > max))
      return undefined;
    const touchedBeforeMs = this.evictAfterIdleMs > 0 ? this.now() - this.evictAfterIdleMs : Infinity;
    const plan = new EvictionPlan<BudgetLease>(lease, touchedBeforeMs);
    for (const holder of lease.holders) {
      while (holder.used - plan.freedOf(holder) + amount > holder.max) {
        if (!plan.chooseFrom(holder)) return undefined;
      }
    }
    while (this.used - plan.freed + amount > limit) {
      if (!plan.chooseFromLargest(this.bySizeClass)) return undefined;
    }
    return plan.victims;
  }

  private classify(holder: Holder): void {
    const sizeClass = sizeClassOf(holder.evictable);
    if (sizeClass === holder.sizeClass) return;
    if (holder.sizeClass !== noSizeClass) this.bySizeClass[holder.sizeClass]!.delete(holder);
    holder.sizeClass = sizeClass;
    if (sizeClass === noSizeClass) return;
    while (this.bySizeClass.length <= sizeClass) this.bySizeClass.push(new Set());
    this.bySizeClass[sizeClass]!.add(holder);
  }
}
