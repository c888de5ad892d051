import { notImplemented } from '@granary/shared/errors';
import type { PaymentsDefinition } from '@granary/shared/gen/granary/payments/v1/Payments';
import type { Handlers } from '@granary/shared/rpc/types';
import { quoteOperation, type OperationPriceList } from './operation-quote';
import { offerRead, type OfferSettings } from './quotes/read-offer';
import type { AgentPayments } from './spending/agent-payments';
import type { Verifier } from './verify/verifier';

export interface HandlerOptions {
  prices: OperationPriceList;
  offers: OfferSettings;
  agentPayments: AgentPayments;
  verifier: Verifier;
}

export function paymentsHandlers({
  prices,
  offers,
  agentPayments,
  verifier,
}: HandlerOptions): Handlers<PaymentsDefinition> {
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
    verifyPayment: async ({ body }) => ({ resultJson: JSON.stringify(await verifier.verify(body)) }),
    listPaymentKinds: () => Promise.resolve({ kindsJson: JSON.stringify(verifier.kinds()) }),
  };
}
