import type { CancelSignal } from '@granary/shared/concurrency/cancellation';
import { createSignal, type Signal } from '@granary/shared/concurrency/signal';
import type { Logger } from '@granary/shared/logger';
import { rows, type Pool } from '@granary/shared/postgres/pool';
import { sql } from '@granary/shared/postgres/sql';
import type { App } from '../catalog/app';

/**
 * How often the heads of watched apps are read. Commits of this process are known without that; those of other copies
 * are noticed no later.
 */
const pollEveryMs = 50;
/** A poll that takes long is followed by a pause of so many times its duration. */
const pollPauseFactor = 10;
/** Apps of one statement. */
const appsPerStatement = 1_000;

interface WatchedApp {
  number: bigint;
  signal: Signal;
  /** How often it was noticed to have changed. */
  changes: number;
  watchers: number;
  /** Height and revision of the catalog when they were last read. */
  seen: string | undefined;
}

/** One who waits for changes of an app; to be closed. */
export interface HeadWatch {
  /**
   * Resolves when the app may have changed since this resolved before, or since the watch began; when the time is up;
   * or when `signal` is aborted.
   */
  changed(timeoutMs: number, signal: CancelSignal): Promise<void>;
  close(): void;
}

/**
 * Notices commits and changes of the catalog of apps that feeds wait for. Nothing is done in a transaction of a write,
 * and nothing at all for apps that nobody watches.
 */
export class HeadSignals {
  private readonly apps = new Map<string, WatchedApp>();
  private polling: NodeJS.Timeout | undefined;
  private isPollFailing = false;
  private isStopped = false;

  constructor(private readonly context: { fast: Pool; log: Logger }) {}

  /** An app has changed, by a commit of this process or a change of its catalog. */
  mark(appId: string): void {
    const app = this.apps.get(appId);
    if (app) notify(app);
  }

  watch({ appId, number }: App): HeadWatch {
    let app = this.apps.get(appId);
    if (app?.number !== number) {
      app = { number, signal: createSignal(), changes: 0, watchers: 0, seen: undefined };
      this.apps.set(appId, app);
    }
    const watched = app;
    watched.watchers += 1;
    this.schedule(pollEveryMs);
    let changes = watched.changes;
    return {
      changed: async (timeoutMs, signal) => {
        if (!this.isStopped && watched.changes === changes) await watched.signal.wait(timeoutMs, signal);
        changes = watched.changes;
      },
      close: () => {
        watched.watchers -= 1;
        if (watched.watchers === 0 && this.apps.get(appId) === watched) this.apps.delete(appId);
      },
    };
  }

  /** Ends every wait, now and from now on. */
  stop(): void {
    this.isStopped = true;
    clearTimeout(this.polling);
    for (const { signal } of this.apps.values()) signal.notify();
  }

  get isStopping(): boolean {
    return this.isStopped;
  }

  private schedule(delayMs: number): void {
    if (this.isStopped || this.apps.size === 0) return;
    this.polling ??= setTimeout(() => void this.poll(), delayMs).unref();
  }

  private async poll(): Promise<void> {
    const startedAtMs = performance.now();
    try {
      const numbers = [...this.apps.values()].map(({ number }) => number);
      for (let start = 0; start < numbers.length; start += appsPerStatement) {
        await this.readHeads(numbers.slice(start, start + appsPerStatement));
      }
      this.isPollFailing = false;
    } catch (error) {
      if (!this.isPollFailing) this.context.log.warn({ err: error }, 'the heads of watched apps cannot be read');
      this.isPollFailing = true;
    }
    this.polling = undefined;
    this.schedule(Math.max(pollEveryMs, (performance.now() - startedAtMs) * pollPauseFactor));
  }

  private async readHeads(numbers: readonly bigint[]): Promise<void> {
    const heads = await rows<{ number: bigint; state: string }>(
      this.context.fast,
      sql`select app_number as number, concat(height, '.', catalog_revision) as state
          from head where app_number = any(${numbers.map(String)}::int8[])`,
    );
    const states = new Map(heads.map(({ number, state }) => [number, state]));
    for (const app of this.apps.values()) {
      const state = states.get(app.number);
      if (state === undefined || app.seen === state) continue;
      app.seen = state;
      notify(app);
    }
  }
}

function notify(app: WatchedApp): void {
  app.changes += 1;
  app.signal.notify();
}
