import { notImplemented } from '@granary/shared/errors';
import type { PaymentsDefinition } from '@granary/shared/gen/granary/payments/v1/Payments';
import type { Handlers } from '@granary/shared/rpc/types';
import { quoteOperation, type OperationPriceList } from './operation-quote';

export function paymentsHandlers(prices: OperationPriceList): Handlers<PaymentsDefinition> {
  return {
    quoteOperation: (request) => Promise.resolve(quoteOperation(prices, request)),
    quoteEncryptedIndex: () => Promise.reject(notImplemented('a quote for an encrypted index')),
    verifyPayment: () => Promise.reject(notImplemented('the verification of payments')),
  };
}
