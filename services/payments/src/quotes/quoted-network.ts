import type { ExactPayment } from '../verify/envelope';
import type { VerifiedPayment } from '../verify/verified-payment';

/** The quote that a payment names. */
export interface PaidQuote {
  id: string;
  expiresAtSeconds: number;
}

/** A network on which quotes are paid. */
export interface QuotedNetwork {
  /** Whether payments are taken now. Those that were taken before are settled also while it is false. */
  isOpen(): boolean;
  /** Nothing on the chain names the quote of a payment, so that only its payer knows it. */
  readonly keepsQuotesSecret?: true;
  /**
   * Verifies a payment whose transaction the payer has sent himself, by looking for it. Absent where payments cannot name one. Throws
   * a Refusal or PAYMENT_REFUSED.
   */
  verifySent?(payment: ExactPayment, quote: PaidQuote): Promise<VerifiedPayment>;
  /** Verifies a payment that names the key of a grant. Absent where there are none. Throws a Refusal or PAYMENT_REFUSED. */
  verifyKey?(payment: ExactPayment, quote: PaidQuote): Promise<VerifiedPayment>;
}
