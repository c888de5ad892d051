import type { PaymentsDefinition } from '@granary/shared/gen/granary/payments/v1/Payments';
import type { Handlers } from '@granary/shared/rpc/types';
import type { PaymentsConfig } from './config';
import { quoteOperation, type OperationPriceList } from './operation-quote';
import { offeredNetworks, offerRead, type OfferSettings } from './quotes/offers';
import { settleRequirements, type FacilitatorOptions } from './settlement/facilitator';
import type { RequestPayments } from './settlement/payments';
import type { PaymentVerification } from './settlement/verify-payment';
import type { RepeatedSpends } from './spending/repeated-spends';
import type { Verifier } from './verify/verifier';

export interface HandlerOptions {
  prices: OperationPriceList & Pick<PaymentsConfig, 'ENCRYPTED_INDEX_UTIA'>;
  offers: OfferSettings;
  spending: RepeatedSpends;
  verifier: Verifier;
  requestPayments: RequestPayments;
  facilitator: FacilitatorOptions;
  verification: PaymentVerification;
}

export function paymentsHandlers({
  prices,
  offers,
  spending,
  verifier,
  requestPayments,
  facilitator,
  verification,
}: HandlerOptions): Handlers<PaymentsDefinition> {
  return {
    quoteOperation: (request) => Promise.resolve(quoteOperation(prices, request)),
    offerRead: (request) => offerRead(offers, request),
    listPaymentNetworks: async () => ({ networks: await offeredNetworks(offers) }),
    checkPayment: (request) => requestPayments.check(request),
    settlePayment: (request, { signal }) => requestPayments.settle(request, signal),
    grantPayment: async ({ ticketId }) => {
      await requestPayments.redeem(ticketId);
      return {};
    },
    getPayment: ({ ticketId }) => requestPayments.state(ticketId),
    settleRequirements: async ({ body, maySettleOthers }) => ({
      resultJson: JSON.stringify(await settleRequirements(facilitator, body, maySettleOthers)),
    }),
    reserveSpend: (request, call) => spending.reserve(request, call),
    completeSpend: async (reservation, call) => {
      await spending.complete(reservation, call);
      return {};
    },
    cancelSpend: async (reservation, call) => {
      await spending.cancel(reservation, call);
      return {};
    },
    resolveSpend: async (request, call) => {
      await spending.resolve(request, call);
      return {};
    },
    priceEncryptedIndex: () => Promise.resolve({ amountUtia: prices.ENCRYPTED_INDEX_UTIA.toString() }),
    verifyPayment: async ({ body }) => ({ resultJson: JSON.stringify(await verification.verify(body)) }),
    listPaymentKinds: () =>
      Promise.resolve({ kindsJson: JSON.stringify(verifier.kinds((network) => offers.networks.has(network))) }),
  };
}
