import type { ExactPayment } from '../verify/envelope';
import type { Reason } from '../verify/refusal';
import type { VerifiedPayment } from '../verify/verified-payment';

/** The quote that a payment names. */
export interface PaidQuote {
  id: string;
  expiresAtSeconds: number;
}

/** A payment of which nothing was sent. */
export interface UnsentPayment extends Pick<VerifiedPayment, 'payer' | 'proof'> {
  /** The amount in units of the asset. */
  amount: bigint;
}

/** Why a payment cannot be settled: a reason of x402, and text for people. */
export interface PaymentProblem {
  reason: string;
  message: string;
}

/** A network on which quotes are paid. */
export interface QuotedNetwork {
  /** Whether payments are taken now. Those that were taken before are settled also while it is false. */
  isOpen(): boolean;
  /** This service pays the fees of settlements. Absent: payers pay them, or there are none. */
  readonly paysFees?: true;
  /** The address of a token or an account in its one spelling. Absent where addresses have one. */
  spelledOnce?(address: string): string;
  /**
   * The reason by which a payment for others is refused that lasts too long: after its transaction has failed it may
   * still move money until its end, and is looked for. Absent: a failed transaction ends a payment.
   */
  readonly tooLongReason?: Reason;
  /** Nothing on the chain names the quote of a payment, so that only its payer knows it. */
  readonly keepsQuotesSecret?: true;
  /**
   * Verifies a payment whose transaction the payer has sent himself, by looking for it. Absent where payments cannot
   * name one. Throws a Refusal or PAYMENT_REFUSED.
   */
  verifySent?(payment: ExactPayment, quote: PaidQuote): Promise<VerifiedPayment>;
  /**
   * Asks the network why a payment could not be settled now: it was used, or its payer has too little. Undefined:
   * nothing is known against it. Sends nothing, and waits for no block. What cannot be asked is thrown as UNAVAILABLE.
   * Absent where nothing can be asked.
   */
  findProblem?(payment: UnsentPayment): Promise<PaymentProblem | undefined>;
  /**
   * Verifies a payment that names the key of a grant. Absent where there are none. Throws a Refusal or PAYMENT_REFUSED.
   */
  verifyKey?(payment: ExactPayment, quote: PaidQuote): Promise<VerifiedPayment>;
}
