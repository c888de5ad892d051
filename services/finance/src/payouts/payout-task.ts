import { pause } from '@granary/shared/concurrency/backoff';
import { degraded, healthy, type Check, type Finding } from '@granary/shared/health/check';
import { startScheduledTask } from '@granary/shared/postgres/scheduled-task';
import { deliver, type Step } from '../outgoing/delivery';
import { startAutoPayouts, type AutoPayoutOptions } from './auto-payouts';
import { payoutPurpose } from './payout-purpose';
import { readPayoutState, signPayouts, type PayoutSigning } from './sign-payouts';

/** When a payout has waited for longer than this, health reports it. */
const lateAfterSeconds = 600;

export interface PayoutTask {
  check: Check;
  stop(): Promise<void>;
}

export interface PayoutTaskOptions extends PayoutSigning {
  auto: AutoPayoutOptions;
  everyMs: number;
  /** How often wallets are looked at that pay out automatically. */
  autoEveryMs: number;
}

/** Starts automatic payouts, and pays those that wait, in one process of the service at a time. */
export function startPayouts(options: PayoutTaskOptions): PayoutTask {
  const { pool, log, auto, everyMs, autoEveryMs } = options;
  let autoAtMs = 0;
  const startAuto = async (stopping: AbortSignal): Promise<void> => {
    if (performance.now() < autoAtMs) return;
    autoAtMs = performance.now() + autoEveryMs;
    while (!stopping.aborted && (await startAutoPayouts(auto)) > 0);
  };
  const task = startScheduledTask({
    pool,
    log,
    name: 'payouts',
    everyMs,
    run: async (stopping) => {
      // A run may last as long as payouts are under way, or one is held, which takes a person.
      while (!stopping.aborted) {
        await startAuto(stopping);
        const step = await advancePayouts(options);
        if (step === 'idle') return;
        if (step === 'waiting') await pause(everyMs, stopping);
      }
    },
  });
  return { check: () => health(options), stop: () => task.stop() };
}

/**
 * Makes the next step of the transaction that is in flight, or signs the next one. Several processes may do it at once.
 * `idle` when nothing is in flight and nothing can be signed.
 */
export async function advancePayouts(options: PayoutSigning): Promise<Step> {
  const step = await deliver({ ...options, purpose: payoutPurpose }, options.sender);
  if (step !== 'idle') return step;
  return (await signPayouts(options)) ? 'progress' : 'idle';
}

async function health({ pool }: PayoutSigning): Promise<Finding> {
  const { held, stoppedBecause, missing, oldestAgeSeconds } = await readPayoutState(pool);
  const problems: string[] = [];
  if (held > 0n) problems.push(`transactions that wait for a person: ${held}`);
  if (stoppedBecause !== null) problems.push(`an address signs nothing until a person resumes it: ${stoppedBecause}`);
  if (missing !== null) problems.push(`the hot wallet lacks ${missing} utia for the next payout`);
  if ((oldestAgeSeconds ?? 0) > lateAfterSeconds) problems.push('a payout has waited for more than 10 minutes');
  return problems.length === 0 ? healthy : degraded(problems.join('; '));
}
