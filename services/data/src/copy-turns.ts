/** After a small write came, copying is held back for so long. */
const heldBackMs = 1_000;

/**
 * Turns at copying bulks ahead. What is copied takes a processor of the database; while small writes come, some are
 * left for them, else all may be taken.
 */
export class CopyTurns {
  private copying = 0;
  private smallAtMs = -Infinity;
  private readonly line: Array<() => void> = [];

  /** `beside`: how many may copy at a time while small writes come. */
  constructor(
    private readonly beside: number,
    private readonly now: () => number = () => performance.now(),
  ) {}

  /** A small write has come. */
  note(): void {
    this.smallAtMs = this.now();
  }

  /** Resolves when a turn has come; each must be ended. */
  take(): Promise<void> {
    if (this.mayCopy()) {
      this.copying += 1;
      return Promise.resolve();
    }
    return new Promise((resolve) => this.line.push(resolve));
  }

  end(): void {
    this.copying -= 1;
    while (this.line.length > 0 && this.mayCopy()) {
      this.copying += 1;
      this.line.shift()!();
    }
  }

  private mayCopy(): boolean {
    return this.copying < this.beside || this.now() - this.smallAtMs > heldBackMs;
  }
}
