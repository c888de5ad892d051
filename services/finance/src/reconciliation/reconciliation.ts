import { degraded, healthy, type Check } from '@granary/shared/health/check';
import type { Logger } from '@granary/shared/logger';
import { execute, row, type Pool } from '@granary/shared/postgres/pool';
import { startScheduledTask } from '@granary/shared/postgres/scheduled-task';
import { sql } from '@granary/shared/postgres/sql';
import { addSource } from '@granary/shared/telemetry/metrics';
import type { Chain } from '../chain/chain';
import { checkAllAccounts, checkChangedAccounts } from './account-checks';
import { checkChain } from './chain-checks';
import { countDifferences, differenceKinds, storeDifferences, type Difference } from './differences';
import { checkSums } from './sum-checks';

const everyMs = 60_000;
/** When the last reconciliation is older than this, health reports that the ledger has not been checked. */
const lateAfterMs = 10 * 60_000;
/** How often all entries are added from the first one. */
const completeEveryHours = 24;

export interface ReconciliationOptions {
  pool: Pool;
  log: Logger;
  chain: Chain;
  everyMs?: number | undefined;
}

export interface Reconciliation {
  check: Check;
  stop(): Promise<void>;
}

/**
 * Compares the figures of the ledger with each other, in one process of the service at a time: counters with entries,
 * debits with credits, what is pending with open holds and with payouts, the blocks of the chain with deposits and with
 * what was signed here, deductions included. A difference is stored and pauses payouts until a person resolves it.
 */
export function startReconciliation(options: ReconciliationOptions): Reconciliation {
  const { pool, log, chain } = options;
  const startedMs = performance.now();
  const task = startScheduledTask({
    pool,
    log,
    name: 'reconciliation',
    everyMs: options.everyMs ?? everyMs,
    run: async (stopping) => {
      await reconcile(pool, log, stopping);
      await reconcileChain(pool, log, chain, stopping);
    },
  });
  const unobserve = observe(pool);
  return {
    check: () => health(pool, performance.now() - startedMs),
    stop: () => task.stop().finally(unobserve),
  };
}

async function reconcile(pool: Pool, log: Logger, stopping: AbortSignal): Promise<void> {
  const isCompleteDue = await row(
    pool,
    sql`select from reconciliation
        where complete_at is null or complete_at < now() - ${completeEveryHours} * interval '1 hour'`,
  );
  const accounts = isCompleteDue
    ? await checkAllAccounts(pool, { keep: true, stopping })
    : await checkChangedAccounts(pool, stopping);
  const sums = await checkSums(pool, { entries: isCompleteDue !== undefined });
  await store(pool, log, [...accounts.differences, ...sums]);
  if (stopping.aborted) return;
  const completed = isCompleteDue ? sql`, complete_at = now()` : sql``;
  await execute(pool, sql`update reconciliation set ended_at = now()${completed}`);
}

/** Runs last, so that a chain that does not answer delays no other check. */
async function reconcileChain(pool: Pool, log: Logger, chain: Chain, stopping: AbortSignal): Promise<void> {
  for (;;) {
    const differences = stopping.aborted ? undefined : await checkChain(pool, chain);
    if (differences === undefined) return;
    await store(pool, log, differences);
  }
}

async function store(pool: Pool, log: Logger, differences: readonly Difference[]): Promise<void> {
  for (const { kind, subject, expected, found } of await storeDifferences(pool, differences)) {
    const figures = { kind, subject, expected: expected.toString(), found: found.toString() };
    log.error(figures, 'reconciliation found a difference, payouts are paused');
  }
}

async function health(pool: Pool, upMs: number): Promise<ReturnType<typeof degraded>> {
  const differences = await countDifferences(pool);
  if (differences.size > 0) {
    const kinds = [...differences].map(([kind, count]) => `${kind} (${count})`).join(', ');
    return degraded(`payouts are paused: the ledger has differences: ${kinds}`);
  }
  const last = await row<{ late: boolean }>(
    pool,
    sql`select ended_at is null or ended_at < now() - ${lateAfterMs} * interval '1 millisecond' as late from reconciliation`,
  );
  return last?.late && upMs > lateAfterMs ? degraded('the ledger has not been reconciled for a while') : healthy;
}

function observe(pool: Pool): () => void {
  return addSource({
    families: [
      {
        name: 'granary_ledger_differences',
        help: 'Differences that reconciliation has found and nobody has resolved; payouts are paused while there are any.',
        labels: ['kind'],
        type: 'gauge',
      },
      {
        name: 'granary_ledger_reconciled_age_seconds',
        help: 'Time since the ledger was last reconciled.',
        labels: [],
        type: 'gauge',
      },
    ],
    collect: async () => {
      const counts = await countDifferences(pool);
      const last = await row<{ age: number | null }>(
        pool,
        sql`select extract(epoch from now() - ended_at)::float8 as age from reconciliation`,
      );
      return {
        granary_ledger_differences: differenceKinds.map((kind) => [[kind], counts.get(kind) ?? 0] as const),
        granary_ledger_reconciled_age_seconds: last?.age == null ? [] : [[[], last.age] as const],
      };
    },
  });
}
