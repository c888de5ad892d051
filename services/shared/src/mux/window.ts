import { windowItems } from './protocol';

/**
 * The share of the window, and of the queue, that one app may use, so that other apps need not wait. Calls without an
 * app (the empty key) are exempt.
 */
export const shareOfOneApp = 1 / 4;

/**
 * The calls of a client that have been sent and not answered, in total and by app. Those on draining streams count. Not
 * a FairScheduler: calls do not start one by one, but as many at once from the FairQueue as fit into a message.
 */
export class InFlightWindow {
  private readonly byKey = new Map<string, number>();
  private total = 0;

  /** `streams`: how many there are now. */
  constructor(private readonly streams: () => number) {}

  private get max(): number {
    return windowItems * this.streams();
  }

  get size(): number {
    return this.total;
  }

  get isFull(): boolean {
    return this.total >= this.max;
  }

  /** Whether this app has reached its share. */
  readonly isHeld = (key: string): boolean => key !== '' && (this.byKey.get(key) ?? 0) >= this.max * shareOfOneApp;

  add(key: string): void {
    this.total++;
    this.byKey.set(key, (this.byKey.get(key) ?? 0) + 1);
  }

  remove(key: string): void {
    this.total--;
    const left = this.byKey.get(key)! - 1;
    if (left > 0) this.byKey.set(key, left);
    else this.byKey.delete(key);
  }
}
