import type { Logger } from '@granary/shared/logger';
import { rows, type Pool } from '@granary/shared/postgres/pool';
import { sql } from '@granary/shared/postgres/sql';
import { dropAbandoned, type ReplacedTables } from '../tables/abandoned';

/** Tables of data sets, each of which is named by the data set that uses it. */
export const datasetTables: ReplacedTables = {
  prefix: 'd_',
  inUse: (appNumber) => sql`select table_number from dataset where app_number = ${appNumber}`,
  locking: { lockTimeoutMs: 1_000, attempts: 2 },
};

interface Sweep {
  timer: NodeJS.Timeout;
  running: Promise<void>;
  /** Whether another table was replaced since it began, which it may not have seen. */
  isRepeated: boolean;
}

/**
 * How long the table of a replaced data set is kept at least. A read looks up its tables before its statements, for
 * which it may have to wait; the statement of its page ends, and a drop that waits for it goes before the one that
 * counts.
 */
const keptMs = 10_000;

/**
 * Drops the tables of replaced data sets after the reads that looked them up. A sweep drops what the sweep before it
 * saw abandoned, so a table is kept for one interval at least, whichever copy of the service replaced it, and two at
 * most.
 */
export class DatasetTableSweeper {
  /** The next sweep of each app; one that runs is there until it ends. */
  readonly #sweeps = new Map<bigint, Sweep>();
  #isStopped = false;

  constructor(
    private readonly context: { pool: Pool; log: Logger },
    private readonly intervalMs = keptMs,
  ) {}

  /** Sweeps an app from now on until none of its tables is abandoned. */
  sweepLater(appNumber: bigint): void {
    const sweep = this.#sweeps.get(appNumber);
    if (sweep) sweep.isRepeated = true;
    else this.schedule(appNumber, new Set());
  }

  /** Sweeps the apps with tables that a process left behind which ended before it dropped them. */
  async sweepAll(): Promise<void> {
    const apps = await rows<{ number: bigint }>(
      this.context.pool,
      sql`select distinct substr(n.nspname, 3)::bigint as number from pg_class c join pg_namespace n on n.oid = c.relnamespace
        where c.relkind = 'r' and c.relname ~ '^d_[0-9]+$' and n.nspname ~ '^a_[0-9]+$'
          and substr(c.relname, 3)::bigint not in (select table_number from dataset)`,
    );
    for (const { number } of apps) this.sweepLater(number);
  }

  async stop(): Promise<void> {
    this.#isStopped = true;
    for (const { timer } of this.#sweeps.values()) clearTimeout(timer);
    await Promise.all([...this.#sweeps.values()].map((sweep) => sweep.running));
  }

  private schedule(appNumber: bigint, seenBefore: ReadonlySet<bigint>): void {
    if (this.#isStopped) return;
    const timer = setTimeout(() => {
      sweep.running = this.run(appNumber, sweep, seenBefore);
    }, this.intervalMs);
    const sweep: Sweep = { timer: timer.unref(), running: Promise.resolve(), isRepeated: false };
    this.#sweeps.set(appNumber, sweep);
  }

  private async run(appNumber: bigint, sweep: Sweep, seenBefore: ReadonlySet<bigint>): Promise<void> {
    sweep.isRepeated = false;
    const left = await dropAbandoned(this.context, appNumber, datasetTables, seenBefore);
    this.#sweeps.delete(appNumber);
    if (left?.size !== 0 || sweep.isRepeated) this.schedule(appNumber, left ?? seenBefore);
  }
}
