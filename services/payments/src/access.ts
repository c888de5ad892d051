import type { PaymentsDefinition } from '@granary/shared/gen/granary/payments/v1/Payments';
import type { AccessTo } from '@granary/shared/rpc/access';

/** The methods of payments that each service may call from another process. */
export const paymentsAccess = {
  gateway: [
    'priceEncryptedIndex',
    'quoteOperation',
    'verifyPayment',
    'listPaymentKinds',
    'listPaymentNetworks',
    'offerRead',
    'checkPayment',
    'settlePayment',
    'grantPayment',
    'settleRequirements',
    'getPayment',
    'reserveSpend',
    'completeSpend',
    'cancelSpend',
    'resolveSpend',
  ],
} satisfies AccessTo<PaymentsDefinition>;
