import { createHash } from 'node:crypto';
import type { Answer } from '../http/answer';
import type { AppCaller } from '../pipeline/access';
import type { GatewayContext } from '../pipeline/gateway-context';
import { idempotencyKey } from '../pipeline/idempotency';
import { requestContextOf } from '../pipeline/request-context';
import type { RouteRequest } from '../pipeline/route';
import { isPaymentRefused } from '../spending/agent-spending';
import type { CarriedPayment } from '../spending/payment-header';
import { payAndRun, paymentMeansIn } from './payment-means';
import { purchaseOf, type PricedRequest } from './payment-required';
import type { Price } from './price';
import { isAnswer, outcomeOf, runPaid, untried, type RunWrite } from './priced-write';

/** The field that an encrypted index covers. Empty members stand for any collection and any field. */
export interface IndexedField {
  collection: string;
  fieldName: string;
}

export const anyField: IndexedField = { collection: '', fieldName: '' };

/** A quote is bound to the field, or to none: not to the rest of the definition, nor to how it is written. */
const requestHashOf = ({ collection, fieldName }: IndexedField): Buffer =>
  createHash('sha256')
    .update(JSON.stringify(['encrypted index', collection, fieldName]))
    .digest();

/**
 * Creates an encrypted index once its price is paid, to the platform alone: by an agent key, a grant, or an x402
 * payment for a quote of this field or of any. One that exists is answered without payment. Throws what `run` throws,
 * and as `payForRead`.
 */
export async function payForIndex(
  gateway: GatewayContext,
  request: RouteRequest<string, AppCaller>,
  field: IndexedField,
  run: RunWrite,
): Promise<Answer> {
  const means = paymentMeansIn(request.incoming);
  const { presented, userKey } = means;
  const runFree = () => outcomeOf(run({ isPaid: false, call: request.call }));
  // A payment or a grant finds the index that it paid for before, so the attempt without payment comes last then.
  const isFoundByPayment = presented !== undefined || userKey !== undefined;
  if (!isFoundByPayment) {
    const outcome = await runFree();
    if (isAnswer(outcome)) return outcome;
  }
  const price = await priceOfIndex(gateway, request, field);
  if (price === 'free') return runPaid(run, { call: request.call });
  const isForAny = presented !== undefined && (await isQuotedFor(gateway, request, anyField, price, presented));
  const answer = await payAndRun(gateway, pricedIndex(request, isForAny ? anyField : field), price, means, {
    run,
    isStreamed: false,
    trial: untried,
    // 200 means that the index existed before, so nothing is charged; a new one is answered with 201 or 202.
    wasDone: ({ status }) => status === 200,
  });
  if (answer.status !== 402 || !isFoundByPayment) return answer;
  const existing = await runFree();
  if (!isAnswer(existing)) return answer;
  requestContextOf(request.outgoing).code = undefined;
  return existing;
}

export const pricedIndex = (
  request: RouteRequest<string, AppCaller>,
  field: IndexedField,
): PricedRequest<AppCaller> => ({
  request,
  appId: request.caller.appId,
  kind: 'index',
  requestHash: requestHashOf(field),
});

/** Whether a payment pays by a quote for that field, or has paid. */
async function isQuotedFor(
  gateway: GatewayContext,
  request: RouteRequest<string, AppCaller>,
  field: IndexedField,
  price: Price,
  { paymentJson }: CarriedPayment,
): Promise<boolean> {
  const purchase = await purchaseOf(gateway, pricedIndex(request, field), price);
  try {
    await gateway.clients.payments.checkPayment(
      { purchase, paymentJson, identifier: idempotencyKey(request) },
      request.call,
    );
    return true;
  } catch (error) {
    // Whatever else is wrong with it is found again for the field itself.
    if (isPaymentRefused(error)) return false;
    throw error;
  }
}

/** The price of an encrypted index now; nothing of it is for the application, whose owner pays. */
export async function priceOfIndex(
  { clients }: GatewayContext,
  { call }: Pick<RouteRequest, 'call'>,
  { fieldName }: IndexedField,
): Promise<Price | 'free'> {
  const { amountUtia } = await clients.payments.priceEncryptedIndex({}, call);
  if (amountUtia === '0') return 'free';
  const fields = fieldName === '' ? [] : [fieldName];
  return { amountUtia, pricingModel: 'per_index', fields, appSharePpm: 0 };
}
