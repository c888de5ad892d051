import { windowItems } from './protocol';

/**
 * An app may have no more than this share of the window, so that there is room for another app at once, and of the
 * queue. Calls without an app (the empty key) are not bounded so.
 */
export const shareOfOneApp = 1 / 4;

/** The calls of a client that have been sent and not answered, in all and by app. Those on draining streams count. */
export class InFlightWindow {
  private readonly max: number;
  private readonly byKey = new Map<string, number>();
  private total = 0;

  constructor(streams: number) {
    this.max = windowItems * streams;
  }

  get size(): number {
    return this.total;
  }

  get isFull(): boolean {
    return this.total >= this.max;
  }

  /** Whether this app has its share. */
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
