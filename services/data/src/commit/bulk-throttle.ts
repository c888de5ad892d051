/** Small writes have priority for so long after each of them. */
const priorityMs = 1_000;
/** A preload waits no longer than this, even if those before it do not end. */
const waitMaxMs = 1_000;
/** A cooldown is no longer than this, however long the copy took. */
const cooldownMaxMs = 200;

/**
 * Throttles the copying of preloads while small writes arrive: `limit` copy at a time, which leaves the other cores of
 * the database to the small writes, and each copy is followed by a cooldown of its own duration. Costs bulks a quarter
 * to a half of their throughput, for they are parsed, prepared and committed meanwhile.
 */
export class BulkThrottle {
  private copying = 0;
  private smallWriteAtMs = -Infinity;
  private readonly waiting = new Set<() => void>();

  constructor(
    private readonly limit: number,
    private readonly now: () => number = () => performance.now(),
  ) {}

  noteSmallWrite(): void {
    this.smallWriteAtMs = this.now();
  }

  /** Resolves with the function that releases the slot; calling it again has no effect. */
  acquire(): Promise<() => void> {
    if (this.waiting.size === 0 && this.mayCopy()) return Promise.resolve(this.begin());
    return new Promise((resolve) => {
      const begin = () => {
        clearTimeout(timer);
        this.waiting.delete(begin);
        resolve(this.begin());
      };
      const timer = setTimeout(begin, waitMaxMs);
      this.waiting.add(begin);
    });
  }

  private begin(): () => void {
    const beganAtMs = this.now();
    let hasEnded = false;
    this.copying += 1;
    return () => {
      if (hasEnded) return;
      hasEnded = true;
      if (!this.isThrottling) this.free();
      else setTimeout(() => this.free(), Math.min(this.now() - beganAtMs, cooldownMaxMs));
    };
  }

  private free(): void {
    this.copying -= 1;
    for (const begin of this.waiting) {
      if (!this.mayCopy()) return;
      begin();
    }
  }

  private mayCopy(): boolean {
    return this.copying < this.limit || !this.isThrottling;
  }

  /** Whether small writes arrive: a bulk must then use one core of the database at a time. */
  get isThrottling(): boolean {
    return this.now() - this.smallWriteAtMs <= priorityMs;
  }
}
