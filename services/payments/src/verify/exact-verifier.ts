import type { Task } from '@granary/shared/concurrency/time-slicing';
import type { ExactPayment } from './envelope';
import type { Members } from './members';
import type { VerifiedPayment } from './verified-payment';

/** Verifies the payments of one scheme by what they contain, without the chain. */
export interface ExactVerifier {
  /** The networks on which it verifies payments, by their CAIP-2 names, as far as they are known yet. */
  networks(): Iterable<string>;
  verifies(network: string): boolean;
  /** Checks what is cheap first, and yields before what takes longer. Throws a Refusal. */
  verify(payment: ExactPayment, nowSeconds: bigint): Task<VerifiedPayment>;
  /**
   * The memo of the transaction in a payment of version 1: the quote that it pays. Undefined where that cannot be read.
   * Absent where transactions have no memo.
   */
  memoOf?(network: string, payload: Members): string | undefined;
  /** The members that `extra` of a requirement must have, as `GET /x402/supported` lists them. */
  readonly extra?: object;
  /** The accounts that sign settlements, by CAIP-2 names of networks or `eip155:*`. */
  readonly signers: Readonly<Record<string, readonly string[]>>;
}
