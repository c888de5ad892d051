/** An app is active for this long after its last request. */
const activeMs = 1_000;

/**
 * Whether more than one app has made requests lately. Keeps the last app and the last other one: constant size and
 * time.
 */
export class ActiveApps {
  private last = { id: '', atMs: -Infinity };
  private lastOther = { id: '', atMs: -Infinity };

  /** A request of the app has arrived. */
  see(appId: string, nowMs: number): void {
    if (this.last.id === appId) {
      this.last.atMs = nowMs;
      return;
    }
    this.lastOther = this.last;
    this.last = { id: appId, atMs: nowMs };
  }

  /** Whether no other app has made a request within the last second. */
  isOnlyActive(appId: string, nowMs: number): boolean {
    const other = this.last.id === appId ? this.lastOther : this.last;
    return nowMs - other.atMs > activeMs;
  }
}
