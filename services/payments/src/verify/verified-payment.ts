import type { ServiceError } from '@granary/shared/errors';

/** A payment whose content meets its requirements. */
export interface VerifiedPayment {
  /** The address, as the payment writes it. */
  payer: string;
  /**
   * Together what makes the payment unique: two payments with the same scope and key move the same money once. The
   * scope is the network, with the asset where a nonce counts per asset.
   */
  scope: string;
  key: string;
  /**
   * From this time on, in seconds since 1970, its settlement is no longer begun. It is when the payment expires on the
   * network; for a payment that does not expire, it only limits how long its claim is kept.
   */
  validUntilSeconds: number;
  /** The data that the network needs to settle it. All members are texts. */
  proof: object;
  /** Why it is not taken, unless it was taken before. */
  refusal?: ServiceError | undefined;
}
