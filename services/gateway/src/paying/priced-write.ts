import type { ServiceError } from '@granary/shared/errors';
import type { WritePrices } from '@granary/shared/gen/granary/data/v1/WritePrices';
import type { WritePricesRequest } from '@granary/shared/gen/granary/data/v1/WritePricesRequest';
import type { Call } from '@granary/shared/rpc/types';
import type { Answer } from '../http/answer';
import { isUnpaid } from './price';

export interface WriteTerms {
  /** The price is paid, or the caller need not pay. */
  isPaid: boolean;
  /** The ticket of the payment that it is done for, once; without it the Idempotency-Key of the request counts. */
  payment?: string;
  /** The ticket of the write, where its price is held until it is known whether it was done; else it makes one. */
  heldTicket?: string;
  call: Call;
}

/** A write that would be done but for its payment. */
export interface Unpaid {
  isUnpaid: true;
  /** The parts that the price depends on; undefined where data has to be asked for them. */
  prices: WritePrices | undefined;
}

/** The answer to a write, or that it is unpaid. */
export type Outcome = Answer | Unpaid;

export const isAnswer = (outcome: Outcome): outcome is Answer => !('isUnpaid' in outcome);

/** Does a write, unless it costs something and is not paid. */
export type RunWrite = (terms: WriteTerms) => Promise<Outcome>;

/** The result of trying an operation without payment: only the payment is missing, or it is refused anyway. */
export type Trial = { kind: 'untried' } | { kind: 'unpaid' } | { kind: 'refused'; refusal: ServiceError };

export const untried: Trial = { kind: 'untried' };

/** An operation that is done once it is paid. */
export interface PaidOperation {
  /** Its body can be read once only, so it is not tried. */
  isStreamed: boolean;
  trial: Trial;
  run: RunWrite;
  /** Whether it was done before, by another request, so that this one changed nothing; without it, never. */
  wasDone?: (answer: Answer) => boolean;
}

/** A write that may cost something. */
export interface PricedWrite extends Pick<PaidOperation, 'run'> {
  /**
   * The parts of the request that its price depends on: of an upload the size alone, undefined where it does not say.
   */
  price: Pick<WritePricesRequest, 'collection' | 'body'> & { sizeBytes: string | undefined };
}

/** Does a write that is paid. Rejects as `run` does. */
export async function runPaid(run: RunWrite, terms: Omit<WriteTerms, 'isPaid'>): Promise<Answer> {
  const outcome = await run({ ...terms, isPaid: true });
  if (!isAnswer(outcome)) throw new Error('what is paid was refused for its price');
  return outcome;
}

/**
 * The outcome of an operation, also of one whose service refuses an unpaid write with an error, as data of the release
 * before does.
 */
export async function outcomeOf(answer: Promise<Outcome>): Promise<Outcome> {
  try {
    return await answer;
  } catch (error) {
    if (!isUnpaid(error)) throw error;
    return { isUnpaid: true, prices: undefined };
  }
}
