import { notImplemented } from '@granary/shared/errors';
import type { PaymentsDefinition } from '@granary/shared/gen/granary/payments/v1/Payments';
import type { Handlers } from '@granary/shared/rpc/types';
import { quoteOperation, type OperationPriceList } from './operation-quote';
import { offerRead, type OfferSettings } from './quotes/read-offer';
import type { AgentPayments } from './spending/agent-payments';

export interface HandlerOptions {
  prices: OperationPriceList;
  offers: OfferSettings;
  agentPayments: AgentPayments;
}

export function paymentsHandlers({ prices, offers, agentPayments }: HandlerOptions): Handlers<PaymentsDefinition> {
  return {
    quoteOperation: (request) => Promise.resolve(quoteOperation(prices, request)),
    offerRead: (request) => Promise.resolve(offerRead(offers, request)),
    reserveSpend: (request, call) => agentPayments.reserve(request, call),
    completeSpend: async (reservation, call) => {
      await agentPayments.complete(reservation, call);
      return {};
    },
    cancelSpend: async (reservation, call) => {
      await agentPayments.cancel(reservation, call);
      return {};
    },
    quoteEncryptedIndex: () => Promise.reject(notImplemented('a quote for an encrypted index')),
    verifyPayment: () => Promise.reject(notImplemented('the verification of payments')),
  };
}
