/** After a small write came, copying is held back for so long. */
const heldBackMs = 1_000;
/** Nobody waits longer for his turn: whoever has it may be stuck. */
const waitMaxMs = 1_000;
/** No rest is longer, however long the copy took. */
const restMaxMs = 200;

/**
 * Turns at copying bulks ahead. What is copied takes a processor of the database; while small writes come, some are
 * left for them, and each turn is followed by a rest as long as the copy took: a bulk is read, prepared and committed
 * in that time too, so that its throughput loses a quarter to a half, and the small writes find a processor that is free.
 */
export class CopyTurns {
  private copying = 0;
  private smallAtMs = -Infinity;
  private readonly line = new Set<() => void>();

  /** `beside`: how many may copy at a time while small writes come. */
  constructor(
    private readonly beside: number,
    private readonly now: () => number = () => performance.now(),
  ) {}

  /** A small write has come. */
  note(): void {
    this.smallAtMs = this.now();
  }

  /** Resolves when a turn has come, or has not for long, with what ends it; to end it again has no effect. */
  take(): Promise<() => void> {
    if (this.line.size === 0 && this.mayCopy()) return Promise.resolve(this.begin());
    return new Promise((resolve) => {
      const begin = () => {
        clearTimeout(timer);
        this.line.delete(begin);
        resolve(this.begin());
      };
      const timer = setTimeout(begin, waitMaxMs);
      this.line.add(begin);
    });
  }

  private begin(): () => void {
    const beganAtMs = this.now();
    let hasEnded = false;
    this.copying += 1;
    return () => {
      if (hasEnded) return;
      hasEnded = true;
      if (this.areSmallThere()) setTimeout(() => this.free(), Math.min(this.now() - beganAtMs, restMaxMs));
      else this.free();
    };
  }

  private free(): void {
    this.copying -= 1;
    for (const begin of this.line) {
      if (!this.mayCopy()) return;
      begin();
    }
  }

  private mayCopy(): boolean {
    return this.copying < this.beside || !this.areSmallThere();
  }

  private areSmallThere(): boolean {
    return this.now() - this.smallAtMs <= heldBackMs;
  }
}
