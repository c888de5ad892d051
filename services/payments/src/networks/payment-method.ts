/** A network on which payments are taken, in an asset. */
export interface PaymentMethod {
  /** CAIP-2. */
  network: string;
  /** How version 1 of x402 names it; undefined: version 1 cannot pay this way. */
  version1Network: string | undefined;
  /** The address to which payments go. */
  payTo: string;
  /** `utia`, or the address of the token. */
  asset: string;
  /** The `asset` of its `Rate`; undefined: utia, which need no rate. */
  rateOf: string | undefined;
  /** Further members for `extra` in the requirement, in addition to those of the quote. */
  extra: Readonly<Record<string, string | number>>;
  /** Whether the requirement asks for the quote as the memo of the transaction. */
  hasMemo?: boolean;
}
