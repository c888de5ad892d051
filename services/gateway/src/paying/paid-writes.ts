import { ServiceError } from '@granary/shared/errors';
import type { Idempotency } from '@granary/shared/gen/granary/idempotency/v1/Idempotency';
import type { OperationQuote } from '@granary/shared/gen/granary/payments/v1/OperationQuote';
import { lengthRequired } from '../errors/problem';
import type { Answer } from '../http/answer';
import { hasPermission, type AppCaller } from '../pipeline/access';
import type { GatewayContext } from '../pipeline/gateway-context';
import { idempotency, idempotencyKey, paidIdempotency } from '../pipeline/idempotency';
import type { RouteRequest } from '../pipeline/route';
import { isAnyGiven, payAndRun, paymentMeansIn } from './payment-means';
import type { PaymentRequired, PricedRequest } from './payment-required';
import { unlessRequired, type PricedWrite, type WriteTerms } from './priced-write';
import { paymentResponses } from './payment-docs';

/** The answers to a write that costs something, in its document. */
export const paidWriteResponses = { 402: paymentResponses[402] };

/** What is kept of a write, under its payment or its own Idempotency-Key. */
export const idempotencyOfWrite = (
  request: RouteRequest<string, AppCaller>,
  { payment }: WriteTerms,
  content: () => Buffer,
): Idempotency => (payment === undefined ? idempotency(request, content) : paidIdempotency(request, payment, content));

/**
 * Does a write, if it costs something once that is paid: by an agent key, a grant or an x402 payment. Keys with Admin write without paying. A
 * write whose collection has no prices is not asked about. Throws LENGTH_REQUIRED, what the write throws, and as `payForRead`.
 */
export async function payForWrite(
  gateway: GatewayContext,
  request: RouteRequest<string, AppCaller>,
  write: PricedWrite,
): Promise<Answer> {
  const { caller, incoming, call } = request;
  if (hasPermission(caller, 'Admin')) return write.run({ isPaid: true, call });
  const means = paymentMeansIn(incoming);
  const isStreamed = write.price.body.length === 0;
  // What an agent key has paid for is found by the Idempotency-Key alone, and may have been its last money.
  const isByKey = means.agentKey !== undefined && idempotencyKey(request) !== '';
  if ((isByKey || !isAnyGiven(means)) && !isStreamed) {
    const answer = await unlessRequired(write.run({ isPaid: false, call }));
    if (answer) return answer;
  }
  // The body of an upload can be read once only, so whether it is such a repetition is asked before, with the price.
  const repeated = isByKey && isStreamed ? idempotency(request, Buffer.alloc(0)) : null;
  const price = await priceOf(gateway, request, write, repeated);
  if (price === 'none') return write.run({ isPaid: false, call });
  if (price === 'free') return write.run({ isPaid: true, call });
  const priced: PricedRequest<AppCaller> = { request, appId: caller.appId, kind: 'write' };
  return payAndRun(gateway, priced, price, means, { run: write.run, isStreamed });
}

/**
 * What a write costs now; `none` where its collection asks nothing, or where an answer is kept under the key of `repeated`, and `free` where
 * that comes to nothing.
 */
async function priceOf(
  { clients }: GatewayContext,
  { caller, call }: RouteRequest<string, AppCaller>,
  { price: { collection, body, sizeBytes } }: PricedWrite,
  repeated: Idempotency | null,
): Promise<PaymentRequired | 'none' | 'free'> {
  const { appId } = caller;
  const found = await clients.data.getWritePrices(
    { appId, collection, body, sizeBytes: sizeBytes ?? '0', idempotency: repeated },
    call,
  );
  if (!found.isPriced || found.isKept) return 'none';
  if (sizeBytes === undefined) throw lengthRequired('An upload that costs something needs a Content-Length');
  const quote = await clients.payments.quoteOperation(
    {
      isWrite: true,
      sizeMicroKb: microKbOf(BigInt(found.sizeBytes)),
      monthlyVolumeKb: '0',
      indexedFields: found.indexedFields,
      premiums: found.prices,
    },
    call,
  );
  return quote.totalUtia === '0' ? 'free' : requiredFor(quote, Number(found.sizeBytes));
}

/** Millionths of a KB of 1,024 bytes, rounded up. */
const microKbOf = (sizeBytes: bigint): string => ((sizeBytes * 1_000_000n + 1_023n) / 1_024n).toString();

function requiredFor({ totalUtia, premium }: OperationQuote, sizeBytes: number): PaymentRequired {
  const { type = 'per_kb', field } = premium?.premium ?? {};
  const details = {
    amount_utia: Number(totalUtia),
    pricing_model: type,
    fields: field === undefined ? [] : [field],
    size_bytes: sizeBytes,
    app_share_ppm: sharePpm(BigInt(premium?.appUtia ?? '0'), BigInt(totalUtia)),
  };
  return new ServiceError('FAILED_PRECONDITION', 'PAYMENT_REQUIRED', `The write costs ${totalUtia} utia`, {
    details,
  }) as PaymentRequired;
}

/** So that `appUtia` is the part of `totalUtia`, rounded down, up to a TIA exactly, and above that to a millionth. */
const sharePpm = (appUtia: bigint, totalUtia: bigint): number =>
  Number((appUtia * 1_000_000n + totalUtia - 1n) / totalUtia);
