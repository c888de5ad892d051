import { invalid } from '@granary/shared/errors';
import type { OperationQuote } from '@granary/shared/gen/granary/payments/v1/OperationQuote';
import type { Premium } from '@granary/shared/gen/granary/payments/v1/Premium';
import type { PremiumCost } from '@granary/shared/gen/granary/payments/v1/PremiumCost';
import type { QuoteOperationRequest } from '@granary/shared/gen/granary/payments/v1/QuoteOperationRequest';
import { maxUtia, parseUtia } from '@granary/shared/money/amounts';
import { appShareOf, divideShares } from './settings/app-share';
import type { PaymentsConfig } from './config';
import { feeTierOf, parseFeeTiers } from './settings/fee-tiers';

/** The prices of the platform for an operation. */
export type OperationPriceList = Pick<
  PaymentsConfig,
  'WRITE_UTIA_PER_KB' | 'READ_UTIA_PER_KB' | 'INDEX_UTIA_PER_KB' | 'BROKER_FEE_PERCENT' | 'APP_SHARE_PERCENT'
>;

const microsPerKb = 1_000_000n;
const basisPointsPerWhole = 10_000n;

/**
 * The price of an operation: the read or write by its size, the broker's fee on that, each indexed field, and the
 * highest premium of the application. Each part is rounded up to whole utia, but the application's share of a premium
 * is rounded down. Throws LIMIT_EXCEEDED for more than 2^53-1 utia.
 */
export function quoteOperation(prices: OperationPriceList, request: QuoteOperationRequest): OperationQuote {
  const sizeMicroKb = parseUtia(request.sizeMicroKb);
  const perKb = (utia: number): bigint => atMost(divideUp(BigInt(utia) * sizeMicroKb, microsPerKb));
  const base = perKb(request.isWrite ? prices.WRITE_UTIA_PER_KB : prices.READ_UTIA_PER_KB);
  const { basisPoints } = feeTierOf(parseFeeTiers(prices.BROKER_FEE_PERCENT), parseUtia(request.monthlyVolumeKb));
  const brokerFee = divideUp(base * basisPoints, basisPointsPerWhole);
  const fieldCost = request.isWrite ? perKb(prices.INDEX_UTIA_PER_KB) : 0n;
  const fields = request.isWrite ? request.indexedFields : [];
  const baseTotal = atMost(base + brokerFee + fieldCost * BigInt(fields.length));
  const premium = highestPremium(request.premiums, sizeMicroKb, prices);
  const total = atMost(baseTotal + parseUtia(premium?.totalUtia ?? '0'));
  return {
    baseUtia: base.toString(),
    brokerFeeUtia: brokerFee.toString(),
    indexingCosts: fields.map((field) => ({ field, costUtia: fieldCost.toString() })),
    baseTotalUtia: baseTotal.toString(),
    totalUtia: total.toString(),
    ...(premium && { premium }),
  };
}

const divideUp = (amount: bigint, divisor: bigint): bigint => (amount + divisor - 1n) / divisor;

function atMost(amount: bigint): bigint {
  if (amount <= maxUtia) return amount;
  throw invalid('The operation costs more than 2^53-1 utia', { size_kb: ['costs too much'] }, 'LIMIT_EXCEEDED');
}

function highestPremium(
  premiums: readonly Premium[],
  sizeMicroKb: bigint,
  prices: OperationPriceList,
): PremiumCost | undefined {
  let highest: { premium: Premium; total: bigint } | undefined;
  for (const premium of premiums) {
    const amount = parseUtia(premium.amountUtia);
    const total = premium.type === 'per_kb' ? atMost(divideUp(amount * sizeMicroKb, microsPerKb)) : amount;
    if (!highest || total > highest.total) highest = { premium, total };
  }
  if (!highest) return undefined;
  const { premium, total } = highest;
  const appSharePpm = appShareOf(prices, premium.appSharePpm);
  const { app, platform } = divideShares(total, appSharePpm);
  return {
    premium,
    totalUtia: total.toString(),
    appUtia: app.toString(),
    platformUtia: platform.toString(),
    appSharePpm,
  };
}
