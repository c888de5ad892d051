import { pause } from '@granary/shared/concurrency/backoff';
import type { Signal } from '@granary/shared/concurrency/signal';
import type { Logger } from '@granary/shared/logger';
import type { Pool } from '@granary/shared/postgres/pool';
import { startScheduledTask } from '@granary/shared/postgres/scheduled-task';
import type { Claims } from './claims';
import { creditIncome, type IncomeOptions } from './income';
import type { Settler } from './settler';

const claimsMax = 100;
const resumeMs = 10_000;
const forgetEveryMs = 3_600_000;
const warnEveryMs = 60_000;

export interface SettlementTaskOptions extends IncomeOptions {
  pool: Pool;
  claims: Claims;
  settler: Settler;
  log: Logger;
  /** How often payments are looked for that no process works on. */
  everyMs: number;
  /** Notified when payments were settled. */
  settled: Signal;
  /** How many payments are on networks that are not configured, in words; empty: none. */
  strandedPayments: () => Promise<string>;
}

/**
 * Takes up payments whose process has ended, credits what was settled, and deletes claims that nobody can present any
 * more, in one process of the service at a time; what this process has settled it credits at once.
 */
export function startSettlementTasks(options: SettlementTaskOptions): { stop(): Promise<void> } {
  const { pool, log, claims, settler, everyMs, strandedPayments } = options;
  const crediting = startCrediting(options);
  const tasks = [
    startScheduledTask({
      pool,
      log,
      name: 'unfinished settlements',
      everyMs,
      run: async (stopping) => {
        while (!stopping.aborted && (await settler.resume(claimsMax, resumeMs)) === claimsMax);
      },
    }),
    startScheduledTask({
      pool,
      log,
      name: 'settlements of removed networks',
      everyMs: warnEveryMs,
      run: async () => {
        const stranded = await strandedPayments();
        if (stranded !== '') log.warn({ stranded }, 'payments on networks that are not configured are not settled');
      },
    }),
    startScheduledTask({
      pool,
      log,
      name: 'income',
      everyMs,
      run: async (stopping) => {
        while (!stopping.aborted && (await creditIncome(options)) > 0);
      },
    }),
    startScheduledTask({
      pool,
      log,
      name: 'old claims',
      everyMs: forgetEveryMs,
      run: async (stopping) => {
        while (!stopping.aborted && (await claims.forgetRefused(claimsMax)) === claimsMax);
        while (!stopping.aborted && (await claims.forget(claimsMax)) === claimsMax);
      },
    }),
  ];
  return {
    stop: async () => {
      await Promise.all([crediting.stop(), ...tasks.map((task) => task.stop())]);
    },
  };
}

/** How long settlements are gathered, so that one call credits several. */
const gatherMs = 20;

/** Credits soon after each settlement. What fails is left to the scheduled task. */
function startCrediting({ settled, everyMs, ...income }: SettlementTaskOptions): { stop(): Promise<void> } {
  const stopping = new AbortController();
  const { signal } = stopping;
  const running = (async () => {
    while (!signal.aborted) {
      await settled.wait(everyMs, signal);
      await pause(gatherMs, signal);
      if (signal.aborted) return;
      await creditIncome(income).catch(() => undefined);
    }
  })();
  return {
    stop: async () => {
      stopping.abort();
      await running;
    },
  };
}
