import type { Check } from '@granary/shared/health/check';
import type { FinanceConfig } from './config';
import { beginWatch } from './deposits/credit-deposits';
import { startDeposits } from './deposits/deposit-task';
import type { OpenChain } from './open-chain';
import { startAutoPayouts } from './payouts/auto-payouts';
import { startPayouts } from './payouts/payout-task';
import type { PayoutRules } from './payouts/reserve-payouts';
import { openFaucet, type Faucet } from './simulated-chain/faucet';

/** Blocks that come faster are looked for this often. */
const fastestMs = 100;
const autoEveryMs = 60_000;

export interface Money {
  payoutRules: PayoutRules;
  faucet: Faucet;
  checks: Record<'deposits' | 'payouts', Check>;
  stop(): Promise<void>;
}

/** Starts what moves money between wallets and the chain. */
export async function startMoney(
  { node, account, signing }: OpenChain,
  config: FinanceConfig,
  every: { chainEveryMs?: number },
): Promise<Money> {
  const { pool } = signing;
  await beginWatch({ pool, chain: node });
  const payoutRules = { floorUtia: BigInt(config.PAYOUT_FLOOR_UTIA), chainAccount: account };
  const auto = { pool, rules: payoutRules, intervalMs: config.PAYOUT_INTERVAL_MS };
  const everyMs = every.chainEveryMs ?? Math.max(fastestMs, config.SIMULATED_BLOCK_MS);
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
  return {
    payoutRules,
    faucet: openFaucet(node, config.FAUCET_UTIA_MAX),
    checks: { deposits: deposits.check, payouts: payouts.check },
    stop: async () => {
      await Promise.all([deposits.stop(), payouts.stop()]);
    },
  };
}
