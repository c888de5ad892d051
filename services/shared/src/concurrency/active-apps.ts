/** An app counts as being there for so long after it was seen last. */
const activeMs = 1_000;

/** Knows of the apps that were seen lately as much as it takes to tell whether one of them is alone. */
export class Presence {
  /** The app that was seen last, and the last one of another. */
  private last = { id: '', atMs: -Infinity };
  private lastOther = { id: '', atMs: -Infinity };

  see(appId: string, nowMs: number): void {
    if (this.last.id === appId) {
      this.last.atMs = nowMs;
      return;
    }
    this.lastOther = this.last;
    this.last = { id: appId, atMs: nowMs };
  }

  isAlone(appId: string, nowMs: number): boolean {
    const other = this.last.id === appId ? this.lastOther : this.last;
    return nowMs - other.atMs > activeMs;
  }
}
