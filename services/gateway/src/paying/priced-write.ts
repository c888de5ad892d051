import type { WritePricesRequest } from '@granary/shared/gen/granary/data/v1/WritePricesRequest';
import type { Call } from '@granary/shared/rpc/types';
import type { Answer } from '../http/answer';
import { isPaymentRequired } from './payment-required';

/** Under what a write is done. */
export interface WriteTerms {
  /** What it costs is paid, or its caller need not pay. */
  isPaid: boolean;
  /** The ticket of the payment that it is done for, once; without it the Idempotency-Key of the request counts. */
  payment?: string;
  /** The ticket of the write, where its price is held until it is known whether it was done; else it makes one. */
  heldTicket?: string;
  call: Call;
}

/** What is done once it is paid. */
export interface PaidOperation {
  /** Its body can be read once only. */
  isStreamed: boolean;
  /** Does it, or refuses it with PAYMENT_REQUIRED when it would be done but for the payment. */
  run: (terms: WriteTerms) => Promise<Answer>;
  /** Whether it was done before, by another request, so that this one changed nothing; without it, never. */
  wasDone?: (answer: Answer) => boolean;
}

/** A write that may cost something. */
export interface PricedWrite extends Pick<PaidOperation, 'run'> {
  /** What its price depends on; of an upload the size alone, undefined where the request does not say. */
  price: Pick<WritePricesRequest, 'collection' | 'body'> & { sizeBytes: string | undefined };
}

/** The answer of a write; undefined when it was refused for its price alone. */
export async function unlessRequired(answer: Promise<Answer>): Promise<Answer | undefined> {
  try {
    return await answer;
  } catch (error) {
    if (!isPaymentRequired(error)) throw error;
    return undefined;
  }
}
