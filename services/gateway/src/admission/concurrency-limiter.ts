import { overloaded } from '../errors/problem';

/**
 * Lets so many through at once; as many again wait in line, not longer than a moment. Whoever finds the line full
 * or waits too long is refused with OVERLOADED: an early 503 rather than a collapse.
 */
export class Gate {
  private inside = 0;
  private readonly line: Array<{ enter: () => void }> = [];

  constructor(
    private readonly limit: number,
    private readonly queueTimeoutMs: number,
  ) {}

  /** Enters if a place is free at once; each place must be left again. */
  tryEnter(): boolean {
    if (this.inside >= this.limit) return false;
    this.inside += 1;
    return true;
  }

  /** Resolves to nothing when a place is free; each place must be left again. */
  async enter(): Promise<void> {
    if (this.tryEnter()) return;
    if (this.line.length >= this.limit) throw overloaded();
    await new Promise<void>((resolve, reject) => {
      const waiting = {
        enter: () => {
          clearTimeout(timer);
          resolve();
        },
      };
      const timer = setTimeout(() => {
        this.line.splice(this.line.indexOf(waiting), 1);
        reject(overloaded());
      }, this.queueTimeoutMs);
      this.line.push(waiting);
    });
  }

  counts(): { inside: number; waiting: number; limit: number } {
    return { inside: this.inside, waiting: this.line.length, limit: this.limit };
  }

  leave(): void {
    const next = this.line.shift();
    if (next) next.enter();
    else this.inside -= 1;
  }
}
