/** Lets `limit` tasks run at once; the others wait in the order in which they came. How many may wait is up to the caller. */
export class Semaphore {
  private held = 0;
  private readonly waiting: Array<() => void> = [];

  constructor(private readonly limit: number) {}

  /** Resolves when there is a slot, undefined when there is one at once; each slot must be released. */
  acquire(): Promise<void> | undefined {
    if (this.held < this.limit) {
      this.held += 1;
      return undefined;
    }
    return new Promise((resolve) => this.waiting.push(resolve));
  }

  /** Passes the slot on to the task that has waited the longest. */
  release(): void {
    const next = this.waiting.shift();
    if (next) next();
    else this.held -= 1;
  }

  counts(): { held: number; waiting: number; limit: number } {
    return { held: this.held, waiting: this.waiting.length, limit: this.limit };
  }
}
