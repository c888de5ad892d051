import type { Connection } from '@granary/shared/postgres/pool';
import type { QuotedNetwork } from '../quotes/quoted-network';
import type { VerifiedPayment } from '../verify/verified-payment';

/** What is settled. */
export interface Settled extends Pick<VerifiedPayment, 'payer' | 'proof'> {
  validUntil: Date;
  /** Null: it is for requirements of somebody else. */
  quoteId?: string | null;
}

/** A transaction that moves the money of a payment. */
export interface SettlementTransaction {
  bytes: Buffer;
  hash: string;
}

export type Plan =
  /**
   * The payment can be settled. `sign` makes the transaction, and sends nothing: it is called in the database transaction that
   * stores the result, so that what the network numbers (nonces of its sender) has no gap, whatever ends when.
   */
  | { state: 'ready'; sign: (tx: Connection) => Promise<SettlementTransaction> }
  /** The network would not include it: a reason of x402, and text for people. */
  | { state: 'refused'; reason: string; message: string };

export type SendResult =
  /** The network has it, or had it before. */
  | { state: 'sent' }
  /** It cannot be included, and the payment is worth nothing: a reason of x402, and text for people. */
  | { state: 'refused'; reason: string; message: string };

export type FindResult =
  /** The money was moved, by this transaction or by another one with the same payment. */
  | { state: 'included'; hash: string; height: bigint; at: Date }
  /** It may still be moved. */
  | { state: 'absent' }
  /** It can never be moved. */
  | { state: 'impossible'; reason: string; message: string };

/** A network on which payments are settled. What cannot be said at the moment is thrown as UNAVAILABLE. */
export interface SettlementNetwork extends QuotedNetwork {
  /** CAIP-2. */
  readonly id: string;
  /** What it takes to settle a payment of which nothing was sent. Changes nothing. */
  plan(payment: Settled): Promise<Plan>;
  /**
   * Sends a transaction; repeatable.
   *
   * @param isFirst Nothing can have sent it before: its refusal is definite.
   */
  send(payment: Settled, transaction: SettlementTransaction, isFirst: boolean): Promise<SendResult>;
  /** Whether the money of a payment was moved. */
  find(payment: Settled, transaction: SettlementTransaction): Promise<FindResult>;
}
