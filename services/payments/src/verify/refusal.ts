/** Why a payment does not meet its requirements: a reason of the x402 specification. */
export type Reason =
  | 'invalid_x402_version'
  | 'invalid_payload'
  | 'invalid_payment_requirements'
  | 'invalid_scheme'
  | 'unsupported_scheme'
  | 'invalid_network'
  | 'invalid_exact_evm_payload_signature'
  | 'invalid_exact_evm_payload_undeployed_smart_wallet'
  | 'invalid_exact_evm_payload_recipient_mismatch'
  | 'invalid_exact_evm_payload_authorization_value'
  | 'invalid_exact_evm_payload_authorization_value_mismatch'
  | 'invalid_exact_evm_payload_authorization_valid_after'
  | 'invalid_exact_evm_payload_authorization_valid_before';

/** The payment is refused. The message is for people and contains nothing of the request. */
export class Refusal extends Error {
  override readonly name = 'Refusal';
  /** Who would have paid, where that is known. */
  payer?: string;

  constructor(
    readonly reason: Reason,
    message: string,
  ) {
    super(message);
  }
}
