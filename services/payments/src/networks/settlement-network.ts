import type { CancelSignal } from '@granary/shared/concurrency/cancellation';
import type { Connection } from '@granary/shared/postgres/pool';
import type { QuotedNetwork } from './quoted-network';
import type { VerifiedPayment } from '../verify/verified-payment';

/** The parts of a payment that its settlement needs. */
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
   * The payment can be settled. `sign` makes the transaction, and sends nothing: it is called in the database
   * transaction that stores the result, so that what the network numbers (nonces of its sender) has no gap, whatever
   * ends when. `release` is called when that is over, whether it succeeded or not.
   */
  | { state: 'ready'; sign: (tx: Connection) => Promise<SettlementTransaction>; release?: () => void }
  /**
   * The payer may have too little beside its other payments that are under way: to be planned again after another
   * block.
   */
  | { state: 'uncovered' }
  /** The network would not include it: a reason of x402, and text for people. */
  | { state: 'refused'; reason: string; message: string };

export type SendResult =
  /** The network has it, or had it before. */
  | { state: 'sent' }
  /** It cannot be included, and the payment is worth nothing: a reason of x402, and text for people. */
  | { state: 'refused'; reason: string; message: string };

export type FindResult =
  /**
   * A block has moved the money, by this transaction or by another one with the same payment. Until `isFinal` the
   * network may replace that block by another one.
   */
  | { state: 'included'; hash: string; height: bigint; at: Date; isFinal: boolean }
  /**
   * It may still be moved; with `hasFailed` by somebody else only, for this transaction was included and has moved
   * nothing.
   */
  | { state: 'absent'; hasFailed?: boolean }
  /** It can never be moved. */
  | { state: 'impossible'; reason: string; message: string };

/** A network on which payments are settled. What cannot be said at the moment is thrown as UNAVAILABLE. */
export interface SettlementNetwork extends QuotedNetwork {
  /** CAIP-2. */
  readonly id: string;
  /**
   * Plans the settlement of a payment of which nothing was sent. Changes nothing.
   *
   * @param uncoveredPlans How often in a row it was `uncovered` before.
   */
  plan(payment: Settled, uncoveredPlans: number): Promise<Plan>;
  /**
   * Sends a transaction; repeatable.
   *
   * @param isFirst Nothing can have sent it before: its refusal is definite.
   */
  send(payment: Settled, transaction: SettlementTransaction, isFirst: boolean): Promise<SendResult>;
  /** Whether the money of a payment was moved. */
  find(payment: Settled, transaction: SettlementTransaction): Promise<FindResult>;
  /**
   * Resolves at the next block, after `timeoutMs`, or when `aborted` aborts. Never rejects. Absent where blocks are not
   * looked for.
   */
  nextBlock?(timeoutMs: number, aborted: CancelSignal): Promise<void>;
}
