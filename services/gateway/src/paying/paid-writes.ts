import { ServiceError, unavailable } from '@granary/shared/errors';
import type { Idempotency } from '@granary/shared/gen/granary/idempotency/v1/Idempotency';
import type { OperationQuote } from '@granary/shared/gen/granary/payments/v1/OperationQuote';
import { message } from '@granary/shared/rpc/types';
import { lengthRequired } from '../errors/problem';
import type { Answer } from '../http/answer';
import { hasPermission, type AppCaller } from '../pipeline/access';
import type { GatewayContext } from '../pipeline/gateway-context';
import { idempotency, idempotencyKey, paidIdempotency } from '../pipeline/idempotency';
import type { RouteRequest } from '../pipeline/route';
import { paymentResponses } from './payment-docs';
import { payAndRun, paymentMeansIn, type PaymentMeans } from './payment-means';
import type { PricedRequest } from './payment-required';
import type { Price } from './price';
import {
  isAnswer,
  outcomeOf,
  runPaid,
  untried,
  type Outcome,
  type PricedWrite,
  type Unpaid,
  type WriteTerms,
} from './priced-write';

/** The answers to a write that costs something, in its document. */
export const paidWriteResponses = { 402: paymentResponses[402] };

/** The idempotency of a write: by the ticket of its payment, or else by its Idempotency-Key. */
export const idempotencyOfWrite = (
  request: RouteRequest<string, AppCaller>,
  { payment }: WriteTerms,
  content: () => Buffer,
): Idempotency => (payment === undefined ? idempotency(request, content) : paidIdempotency(request, payment, content));

/**
 * Does a write; if it costs something, once that is paid: by an agent key, a grant or an x402 payment. Keys with Admin
 * write without paying. It is tried without payment first, so that what costs nothing is written at once, and what
 * would be refused anyway costs nothing. Throws LENGTH_REQUIRED, what the write throws, and as `payForRead`.
 */
export async function payForWrite(
  gateway: GatewayContext,
  request: RouteRequest<string, AppCaller>,
  write: PricedWrite,
): Promise<Answer> {
  const { caller, incoming, call } = request;
  if (hasPermission(caller, 'Admin')) return runPaid(write.run, { call });
  const means = paymentMeansIn(incoming);
  const isStreamed = write.price.body.length === 0;
  let unpaid: Unpaid | undefined;
  let trial = untried;
  if (!isStreamed) {
    try {
      const outcome = await outcomeOf(write.run({ isPaid: false, call }));
      if (isAnswer(outcome)) return outcome;
      unpaid = outcome;
      trial = { kind: 'unpaid' };
    } catch (error) {
      // A write that was paid for and done may be refused now, for example for the unique value that it took itself.
      const mayHavePaid = means.presented !== undefined || means.userKey !== undefined;
      if (!mayHavePaid || !(error instanceof ServiceError)) throw error;
      trial = { kind: 'refused', refusal: error };
    }
  }
  const price = await priceOf(gateway, request, write, means, unpaid);
  if (price === 'none' && trial.kind === 'refused') throw trial.refusal;
  if (price === 'none') return answerOf(write.run({ isPaid: false, call }));
  if (price === 'free') return runPaid(write.run, { call });
  const priced: PricedRequest<AppCaller> = { request, appId: caller.appId, kind: 'write' };
  return payAndRun(gateway, priced, price, means, { run: write.run, isStreamed, trial });
}

/**
 * The answer of a write to a collection without prices, whose owner may have set some meanwhile: then it is sent again.
 */
async function answerOf(running: Promise<Outcome>): Promise<Answer> {
  const outcome = await running;
  if (!isAnswer(outcome)) throw unavailable('The collection has prices since a moment ago: repeat the request');
  return outcome;
}

/**
 * The price of a write now: `none` where its collection has no prices, or where an answer is kept under the
 * Idempotency-Key, and `free` where the prices come to nothing.
 */
async function priceOf(
  gateway: GatewayContext,
  request: RouteRequest<string, AppCaller>,
  { price: { collection, body, sizeBytes } }: PricedWrite,
  means: PaymentMeans,
  unpaid: Unpaid | undefined,
): Promise<Price | 'none' | 'free'> {
  const { clients } = gateway;
  const { caller, call } = request;
  // The body of an upload can be read once only, so whether a key has paid for it before is asked first, with the
  // price.
  const isRepeatable = body.length === 0 && means.agentKey !== undefined && idempotencyKey(request) !== '';
  const repeated = isRepeatable ? idempotency(request, Buffer.alloc(0)) : null;
  const priceRequest = { appId: caller.appId, collection, body, sizeBytes: sizeBytes ?? '0', idempotency: repeated };
  const writePrices = unpaid?.prices ?? (await clients.data.getWritePrices(priceRequest, call));
  if (!writePrices.isPriced || writePrices.isKept) return 'none';
  if (sizeBytes === undefined) throw lengthRequired('An upload that costs something needs a Content-Length');
  const quote = await clients.payments.quoteOperation(
    {
      isWrite: true,
      sizeMicroKb: microKbOf(BigInt(writePrices.sizeBytes)),
      monthlyVolumeKb: '0',
      indexedFields: writePrices.indexedFields,
      premiums: writePrices.prices,
    },
    call,
  );
  return quote.totalUtia === '0' ? 'free' : priceOfQuote(quote, writePrices.sizeBytes);
}

/** Millionths of a KB of 1,024 bytes, rounded up. */
const microKbOf = (sizeBytes: bigint): string => ((sizeBytes * 1_000_000n + 1_023n) / 1_024n).toString();

function priceOfQuote({ totalUtia, premium }: OperationQuote, sizeBytes: string): Price {
  const { type = 'per_kb', field } = premium?.premium ?? {};
  return message<Price>({
    amountUtia: totalUtia,
    pricingModel: type,
    fields: field === undefined ? [] : [field],
    sizeBytes,
    appSharePpm: sharePpm(BigInt(premium?.appUtia ?? '0'), BigInt(totalUtia)),
  });
}

/**
 * Returns the share in millionths, rounded up so that this share of `totalUtia`, rounded down, is `appUtia`: exactly up
 * to a TIA, and above that to a millionth.
 */
const sharePpm = (appUtia: bigint, totalUtia: bigint): number =>
  Number((appUtia * 1_000_000n + totalUtia - 1n) / totalUtia);
