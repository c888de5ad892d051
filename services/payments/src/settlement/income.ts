import { unavailable } from '@granary/shared/errors';
import type { CommandResult } from '@granary/shared/gen/granary/finance/v1/CommandResult';
import type { Command } from '@granary/shared/gen/granary/finance/v1/Command';
import type { LedgerDefinition } from '@granary/shared/gen/granary/finance/v1/Ledger';
import type { Logger } from '@granary/shared/logger';
import { newCall, type Client } from '@granary/shared/rpc/types';
import { newDocumentId } from '@granary/shared/ids';
import { transferId } from '@granary/shared/money/transfer-id';
import { divideShares } from '../settings/app-share';
import type { Claim } from './claim';
import type { Claims } from './claims';

/** Payments of one call to the ledger. */
const batchMax = 100;
const callTimeoutMs = 10_000;

export interface IncomeOptions {
  claims: Claims;
  ledger: () => Pick<Client<LedgerDefinition>, 'apply'>;
  log: Logger;
}

/**
 * Credits settled payments that the ledger does not have yet: the share of the application to its wallet, the rest to
 * the platform, and the asset that was collected. The legs of a payment move together, and once however often they are
 * asked for. Returns how many payments it credited. Rejects with UNAVAILABLE while the ledger is away.
 */
export async function creditIncome({ claims, ledger, log }: IncomeOptions): Promise<number> {
  const settled = await claims.uncredited(batchMax);
  if (settled.length === 0) return 0;
  const apply = async (payments: readonly Claim[], kinds: readonly Leg[]): Promise<string[]> => {
    if (payments.length === 0) return [];
    const groups = payments.map((claim) => ({ commands: legsOf(claim, kinds) }));
    const call = newCall(newDocumentId(), callTimeoutMs);
    return (await ledger().apply({ groups }, call)).groups.map(({ results }) => refusalIn(results));
  };
  const refusals = await apply(settled, allLegs);
  // An amount of a token with many decimals may be too large for an account. The claim still has it.
  const uncounted = settled.filter((_, index) => refusals[index] === 'AMOUNT_OUT_OF_RANGE');
  const again = (await apply(uncounted, ['income', 'income_share'])).values();
  const last = refusals.map((reason) => (reason === 'AMOUNT_OUT_OF_RANGE' ? again.next().value! : reason));
  if (last.includes('PLAY_MONEY')) log.error('payments on the simulated network are not credited to real wallets');
  const ended = settled.filter((_, index) => last[index] === '' || last[index] === 'PLAY_MONEY');
  await claims.credited(ended.map(({ id }) => id));
  const reasons = new Set(last.filter((reason) => reason !== '' && reason !== 'PLAY_MONEY'));
  if (reasons.size > 0) throw unavailable(`The ledger refuses the income of payments: ${[...reasons].join(', ')}`);
  return settled.length;
}

/**
 * The reason for which a group was refused; empty: it was applied. Others of its commands fail only because they are
 * linked.
 */
function refusalIn(results: readonly CommandResult[]): string {
  const reasons = results.filter(({ outcome }) => outcome === 'refused').map(({ reason }) => reason);
  return reasons.find((reason) => reason !== 'LINKED_FAILED') ?? reasons[0] ?? '';
}

const allLegs = ['income', 'income_share', 'asset'] as const;
type Leg = (typeof allLegs)[number];

/** The transfers in the ledger for a settled payment, of the given kinds. */
function legsOf(claim: Claim, kinds: readonly Leg[]): Command[] {
  const { id, appId, amountUtia, appSharePpm, network, asset, amount, createdAt } = claim;
  const { app, platform } = divideShares(amountUtia, appSharePpm);
  const unit = `${network}/${asset}`;
  const legs: Array<[kind: Leg, debit: string, credit: string, amount: bigint]> = [
    ['income', 'rates', `app:${appId!}`, app],
    ['income_share', 'rates', 'platform:fees', platform],
    ['asset', `world:${unit}`, `asset:${unit}`, amount],
  ];
  return legs
    .filter(([kind, , , units]) => units > 0n && kinds.includes(kind))
    .map(([kind, debitAccount, creditAccount, units]) => ({
      id: transferId(createdAt, kind, id),
      kind,
      action: 'transfer' as const,
      transfer: {
        debitAccount,
        creditAccount,
        amount: units.toString(),
        ref: id,
        atMost: false,
        expiresAtMs: '0',
      },
    }));
}
