/** Why a payment does not meet its requirements: a reason of the x402 specification. */
export type Reason =
  | 'invalid_x402_version'
  | 'invalid_payload'
  | 'invalid_payment_requirements'
  | 'invalid_scheme'
  | 'unsupported_scheme'
  | 'invalid_network'
  | 'settlement_unavailable'
  /** A reason of one scheme, as its official facilitator names it. */
  | `invalid_exact_${string}`;

/** The payment is refused. The message is for people and contains nothing of the request. */
export class Refusal extends Error {
  override readonly name = 'Refusal';
  /** The address that would have paid, where it is known. */
  payer?: string;

  constructor(
    readonly reason: Reason,
    message: string,
  ) {
    super(message);
  }
}
