import type { PaymentProblem } from '../../networks/quoted-network';

export const insufficientFunds: PaymentProblem = {
  reason: 'insufficient_funds',
  message: 'The payer has too little of the token',
};

export const expired = {
  reason: 'invalid_exact_evm_payload_authorization_valid_before',
  message: 'The time of the authorization is over',
} as const;
