import { notImplemented, unavailable } from '@granary/shared/errors';
import type { PaymentsDefinition } from '@granary/shared/gen/granary/payments/v1/Payments';
import type { Prices } from '@granary/shared/gen/granary/payments/v1/Prices';
import type { Handlers } from '@granary/shared/rpc/types';
import type { Pool } from '@granary/shared/postgres/pool';
import { quoteOperation, type OperationPriceList } from './operation-quote';
import { readPrices, type PriceList } from './prices';

interface PaymentsContext {
  pool: Pool;
  prices: OperationPriceList;
}

export function paymentsHandlers({ pool, prices }: PaymentsContext): Handlers<PaymentsDefinition> {
  return {
    getPrices: async () => toPrices(await readPrices(pool)),
    quoteOperation: (request) => Promise.resolve(quoteOperation(prices, request)),
    quoteEncryptedIndex: () => Promise.reject(notImplemented('a quote for an encrypted index')),
    verifyPayment: () => Promise.reject(notImplemented('the verification of payments')),
  };
}

function toPrices(prices: Partial<PriceList>): Prices {
  const { retention_utia_per_gib_day: perGibDay, retention_free_days: freeDays } = prices;
  if (perGibDay === undefined || freeDays === undefined) throw unavailable('Prices are not available yet; retry later');
  return { retentionUtiaPerGibDay: perGibDay.toString(), retentionFreeDays: Number(freeDays) };
}
