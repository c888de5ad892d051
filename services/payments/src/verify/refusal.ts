/** Reasons of payments on Solana, as the official facilitator names them. */
type SolanaReason =
  | 'missing_fee_payer'
  | 'transaction'
  | 'transaction_could_not_be_decoded'
  | 'signature_invalid'
  | 'excessive_signers'
  | 'no_transfer_instruction'
  | 'transaction_fee_payer_transferring_funds'
  | `${'mint' | 'recipient' | 'amount' | 'memo'}_mismatch`
  | 'memo_count'
  | `unknown_${'fourth' | 'fifth' | 'sixth' | 'seventh'}_instruction`
  | 'transaction_instructions_length'
  | `transaction_instructions_compute_${'limit' | 'price'}_instruction${'' | '_too_high'}`;

/** Why a payment does not meet its requirements: a reason of the x402 specification. */
export type Reason =
  | 'invalid_x402_version'
  | 'invalid_payload'
  | 'invalid_payment_requirements'
  | 'invalid_scheme'
  | 'unsupported_scheme'
  | 'invalid_network'
  | 'settlement_unavailable'
  | 'invalid_exact_cosmos_payload_transaction'
  | 'invalid_exact_cosmos_payload_signature'
  | `invalid_exact_cosmos_payload_${'recipient' | 'amount' | 'memo'}_mismatch`
  | 'invalid_exact_evm_payload_signature'
  | 'invalid_exact_evm_payload_undeployed_smart_wallet'
  | 'invalid_exact_evm_payload_recipient_mismatch'
  | 'invalid_exact_evm_payload_authorization_value'
  | 'invalid_exact_evm_payload_authorization_value_mismatch'
  | 'invalid_exact_evm_payload_authorization_valid_after'
  | 'invalid_exact_evm_payload_authorization_valid_before'
  | 'invalid_exact_svm_fee_payer_not_managed_by_facilitator'
  | 'invalid_exact_svm_fee_payer_mismatch'
  | 'invalid_exact_svm_invalid_fee_payer'
  | 'invalid_exact_svm_smart_wallet_alt_resolution_not_available'
  | `invalid_exact_svm_payload_${SolanaReason}`;

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
