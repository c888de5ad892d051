export interface MinimumRateLimits {
  /** Time in which a transfer may be slower: the first average is that of this time. */
  graceMs: number;
  /** The least average, of the grace period and then of each window. */
  bytesPerSecond: number;
  windowMs: number;
}

/** Time between two looks at all transfers: how late a verdict may come. */
const tickMs = 250;

/** One transfer that is watched. Made by `MinimumRateMonitor.start`. */
export class MonitoredTransfer {
  /** Ticks of the present window, without those that were paused. */
  ticks = 0;
  bytes = 0;
  isPaused = false;
  hasGrace = true;

  constructor(
    readonly onTooSlow: () => void,
    private readonly watched: Set<MonitoredTransfer>,
  ) {}

  /** Counts bytes that the peer has sent or taken. */
  add(bytes: number): void {
    this.bytes += bytes;
  }

  /** Stops the clock: from now on it is our side that the transfer waits for. */
  pause(): void {
    this.isPaused = true;
  }

  resume(): void {
    this.isPaused = false;
  }

  /** Ends the watch. May be called again. */
  stop(): void {
    this.watched.delete(this);
  }
}

/**
 * Finds transfers whose peer is too slow: `onTooSlow` is called once for a transfer with a lower average than
 * `bytesPerSecond` over its grace period or over one of the windows that follow. One timer serves all transfers, so a
 * transfer costs nothing but its counter. Time is counted in ticks of that timer: while the event loop is held up, and
 * nobody could have been served, no peer is charged for it.
 */
export class MinimumRateMonitor {
  private readonly watched = new Set<MonitoredTransfer>();
  private timer: NodeJS.Timeout | undefined;
  private readonly graceTicks: number;
  private readonly windowTicks: number;

  constructor(private readonly limits: MinimumRateLimits) {
    this.graceTicks = Math.max(1, Math.ceil(limits.graceMs / tickMs));
    this.windowTicks = Math.max(1, Math.ceil(limits.windowMs / tickMs));
  }

  /** Watches a transfer from now on; it must be stopped. `onTooSlow` is called when the watch has ended. */
  start(onTooSlow: () => void): MonitoredTransfer {
    const transfer = new MonitoredTransfer(onTooSlow, this.watched);
    this.watched.add(transfer);
    // The timer runs on until a tick finds nothing, so that short transfers do not start one each.
    this.timer ??= setInterval(() => this.tick(), tickMs).unref();
    return transfer;
  }

  /** Transfers that are watched. */
  get size(): number {
    return this.watched.size;
  }

  private tick(): void {
    if (this.watched.size === 0) {
      clearInterval(this.timer);
      this.timer = undefined;
      return;
    }
    for (const transfer of this.watched) {
      if (transfer.isPaused) continue;
      transfer.ticks += 1;
      if (transfer.ticks < (transfer.hasGrace ? this.graceTicks : this.windowTicks)) continue;
      const seconds = (transfer.ticks * tickMs) / 1_000;
      if (transfer.bytes < this.limits.bytesPerSecond * seconds) {
        this.watched.delete(transfer);
        transfer.onTooSlow();
        continue;
      }
      transfer.hasGrace = false;
      transfer.ticks = 0;
      transfer.bytes = 0;
    }
  }
}
