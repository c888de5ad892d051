import type { Check } from '@granary/shared/health/check';
import type { FinanceConfig } from './config';
import { startDeposits } from './deposits/deposit-task';
import { startDeductions } from './grants/deduction-task';
import { startRemovingOldGrants } from './grants/old-grants';
import type { OpenChain } from './open-chain';
import { startAutoPayouts } from './payouts/auto-payouts';
import { observePayouts } from './payouts/payout-metrics';
import { startPayouts } from './payouts/payout-task';
import type { PayoutRules } from './payouts/reserve-payouts';

const autoEveryMs = 60_000;

export interface Money {
  payoutRules: PayoutRules;
  checks: Record<'deposits' | 'payouts' | 'grants', Check>;
  stop(): Promise<void>;
}

/** Starts what moves money between wallets and the chain. */
export function startMoney(
  { account, signing, broker, grants, ...opened }: OpenChain,
  config: FinanceConfig,
  every: { chainEveryMs?: number },
): Money {
  const { pool } = signing;
  const payoutRules = { floorUtia: BigInt(config.PAYOUT_FLOOR_UTIA), chainAccount: account };
  const auto = { pool, rules: payoutRules, intervalMs: config.PAYOUT_INTERVAL_MS };
  const everyMs = every.chainEveryMs ?? opened.everyMs;
  const deposits = startDeposits({
    ...signing,
    chainAccount: account,
    hotWallet: signing.sender,
    depthBlocks: config.DEPOSIT_DEPTH_BLOCKS,
    everyMs,
    credited: async (appIds) => {
      await startAutoPayouts(auto, appIds);
    },
  });
  const payouts = startPayouts({ ...signing, auto, everyMs, autoEveryMs: every.chainEveryMs ?? autoEveryMs });
  const deductions = startDeductions({ ...signing, broker, grants, everyMs });
  const oldGrants = startRemovingOldGrants(pool, signing.log);
  const unobserve = observePayouts(pool);
  return {
    payoutRules,
    checks: { deposits: deposits.check, payouts: payouts.check, grants: deductions.check },
    stop: async () => {
      unobserve();
      await Promise.all([deposits.stop(), payouts.stop(), deductions.stop(), oldGrants.stop()]);
    },
  };
}
