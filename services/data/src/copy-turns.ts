/** After a small write came, copying is held back for so long. */
const heldBackMs = 1_000;
/** Nobody waits longer for his turn: whoever has it may be stuck. */
const waitMaxMs = 1_000;

/**
 * Turns at copying bulks ahead. What is copied takes a processor of the database; while small writes come, some are
 * left for them, else all may be taken.
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

  /** Resolves when a turn has come, or has not for long; each must be ended. */
  take(): Promise<void> {
    if (this.line.size === 0 && this.mayCopy()) {
      this.copying += 1;
      return Promise.resolve();
    }
    return new Promise((resolve) => {
      const begin = () => {
        clearTimeout(timer);
        this.line.delete(begin);
        this.copying += 1;
        resolve();
      };
      const timer = setTimeout(begin, waitMaxMs);
      this.line.add(begin);
    });
  }

  end(): void {
    this.copying -= 1;
    for (const begin of this.line) {
      if (!this.mayCopy()) return;
      begin();
    }
  }

  private mayCopy(): boolean {
    return this.copying < this.beside || this.now() - this.smallAtMs > heldBackMs;
  }
}
