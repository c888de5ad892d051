import { degraded, healthy, type Check } from '@granary/shared/health/check';
import { row } from '@granary/shared/postgres/pool';
import { startScheduledTask } from '@granary/shared/postgres/scheduled-task';
import { sql } from '@granary/shared/postgres/sql';
import { creditDeposits, type WatchOptions } from './credit-deposits';
import { Sweeps, type SweepOptions } from './sweep';

export interface DepositOptions extends WatchOptions, SweepOptions {
  everyMs: number;
  /** Called with applications that got something. */
  credited: (appIds: readonly string[]) => Promise<void>;
}

/** Credits deposits and sends them to the hot wallet, in one process of the service at a time. */
export function startDeposits(options: DepositOptions): { check: Check; stop(): Promise<void> } {
  const { pool, log, everyMs, credited } = options;
  const sweeps = new Sweeps(options);
  const task = startScheduledTask({
    pool,
    log,
    name: 'deposits',
    everyMs,
    run: async (stopping) => {
      for (;;) {
        const appIds = stopping.aborted ? undefined : await creditDeposits(options);
        if (appIds === undefined) break;
        if (appIds.length > 0) await credited(appIds);
      }
      if (!stopping.aborted) await sweeps.advance();
    },
  });
  const check: Check = async () => {
    const refused = await row<{ count: bigint }>(pool, sql`select count(*) from deposit where transfer_id is null`);
    return refused!.count === 0n ? healthy : degraded(`deposits that could not be credited: ${refused!.count}`);
  };
  return { check, stop: () => task.stop() };
}
