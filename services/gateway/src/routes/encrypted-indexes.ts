import { createHash } from 'node:crypto';
import { z } from 'zod';
import { invalid } from '@granary/shared/errors';
import { newTicket } from '@granary/shared/ids';
import { accepted, json, JsonText, type Answer } from '../http/answer';
import type { AppCaller } from '../pipeline/access';
import { isPaymentRefused } from '../spending/agent-spending';
import type { CarriedPayment } from '../spending/payment-header';
import type { GatewayContext } from '../pipeline/gateway-context';
import { requestContextOf } from '../pipeline/request-context';
import { route, type RouteRequest } from '../pipeline/route';
import {
  exampleTicket,
  fieldPathSchema,
  nameSchema,
  objectSchema,
  ticketSchema,
  timeSchema,
} from '../validation/schemas';
import { payAndRun, paymentMeansIn } from '../paying/payment-means';
import { offerRequest, purchaseOf, type PricedRequest } from '../paying/payment-required';
import type { Price } from '../paying/price';
import { isAnswer, outcomeOf, runPaid, type RunWrite } from '../paying/priced-write';
import { idempotencyHeader, idempotencyKey, idempotencyOfJson, replayedHeader } from '../pipeline/idempotency';

/** The field that an encrypted index covers. Empty members stand for any collection and any field. */
interface IndexedField {
  collection: string;
  fieldName: string;
}

const anyField: IndexedField = { collection: '', fieldName: '' };

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
  // Where the request has a payment or a grant, the index that it paid for before is found first.
  const isFoundByPayment = presented !== undefined || userKey !== undefined;
  if (!isFoundByPayment) {
    const outcome = await runFree();
    if (isAnswer(outcome)) return outcome;
  }
  const price = await priceOf(gateway, request, field);
  if (price === 'free') return runPaid(run, { call: request.call });
  const isForAny = presented !== undefined && (await isQuotedFor(gateway, request, anyField, price, presented));
  const answer = await payAndRun(gateway, pricedOf(request, isForAny ? anyField : field), price, means, {
    run,
    isStreamed: false,
    // 200 means that the index existed before, so nothing is charged; a new one is answered with 201 or 202.
    wasDone: ({ status }) => status === 200,
  });
  if (answer.status !== 402 || !isFoundByPayment) return answer;
  const existing = await runFree();
  if (!isAnswer(existing)) return answer;
  requestContextOf(request.outgoing).code = undefined;
  return existing;
}

const pricedOf = (request: RouteRequest<string, AppCaller>, field: IndexedField): PricedRequest<AppCaller> => ({
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
  const purchase = await purchaseOf(gateway, pricedOf(request, field), price);
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
async function priceOf(
  { clients }: GatewayContext,
  { call }: Pick<RouteRequest, 'call'>,
  { fieldName }: IndexedField,
): Promise<Price | 'free'> {
  const { amountUtia } = await clients.payments.priceEncryptedIndex({}, call);
  if (amountUtia === '0') return 'free';
  const fields = fieldName === '' ? [] : [fieldName];
  return { amountUtia, pricingModel: 'per_index', fields, appSharePpm: 0 };
}

const quoteSchema = z.object({
  quote_id: z.string().nullable().describe('The quote of the first of `accepts`; null where there is none'),
  expires_at: timeSchema.nullable().describe('Until when it can be paid'),
  price_utia: z.int().describe('What an encrypted index costs'),
  x402Version: z.literal(1).describe('Always 1'),
  error: z.literal('').describe('Always empty'),
  accepts: z.array(objectSchema).describe('The requirements of x402; empty where no network is configured'),
});

const quoteQuery = z.object({
  collection: nameSchema
    .optional()
    .describe('With `field_name`: the quote is for an index over that field; without both for any index of the app'),
  field_name: fieldPathSchema.optional().describe('The field; with `collection`'),
});

interface Requirement {
  extra: { quoteId: string; pricing: { expiresAt: number } };
}

/** `GET …/indexes/encrypted-quote`: what an encrypted index costs, and how it may be paid. Nothing is stored. */
export const encryptedQuoteRoute = route({
  method: 'GET',
  path: '/apps/{app_id}/indexes/encrypted-quote',
  id: 'quoteEncryptedIndex',
  summary: 'Ask the price of an encrypted index',
  description:
    'A quote that an x402 payment in `POST /api/apps/{app_id}/indexes` pays, with `index_type` `encrypted`: see ' +
    'docs/encryption.md.',
  tag: 'Indexes',
  auth: { kind: 'app', permission: 'Read' },
  query: quoteQuery,
  responses: {
    200: {
      description: 'The quote',
      schema: quoteSchema,
      example: { quote_id: null, expires_at: null, price_utia: 1_000_000, x402Version: 1, error: '', accepts: [] },
    },
    400: { description: 'A parameter is invalid' },
  },
  handle: async (gateway, request) => {
    const { collection, field_name: fieldName } = request.query;
    if ((collection === undefined) !== (fieldName === undefined)) {
      throw invalid('The query is not valid', { field_name: ['goes with collection: give both or none'] });
    }
    const field = collection === undefined || fieldName === undefined ? anyField : { collection, fieldName };
    const price = await priceOf(gateway, request, field);
    if (price === 'free') return json(200, quoteJson(0, []));
    const offer = await gateway.clients.payments.offerRead(
      await offerRequest(gateway, pricedOf(request, field), price),
      request.call,
    );
    const accepts = JSON.parse(offer.acceptsJson) as Requirement[];
    return json(
      200,
      { ...quoteJson(Number(price.amountUtia), accepts), accepts: new JsonText(offer.acceptsJson) },
      { 'Cache-Control': 'no-store', ...(offer.header !== undefined && { 'PAYMENT-REQUIRED': offer.header }) },
    );
  },
});

/** `POST …/encryption/rotate`: another data key for the encrypted fields of an app. */
export const rotateDataKeyRoute = route({
  method: 'POST',
  path: '/apps/{app_id}/encryption/rotate',
  id: 'rotateDataKey',
  summary: 'Encrypt the fields of an application by a new key',
  description:
    'What is written from now on is encrypted by the new key; a task writes present documents anew, each as a new ' +
    'version. The text of older versions stays as it is: see docs/encryption.md.',
  tag: 'Indexes',
  auth: { kind: 'app', permission: 'Admin' },
  headers: idempotencyHeader,
  responses: {
    202: {
      description: 'There is a new key, and documents are being written anew',
      schema: ticketSchema,
      example: { success: true, message: 'Encrypted fields have a new key', ticket_id: exampleTicket },
    },
    409: { description: 'The application has no encrypted field', codes: ['ENCRYPTION_CONFLICT'] },
    503: { description: 'There is no key for encrypted fields', codes: ['ENCRYPTION_UNAVAILABLE'] },
  },
  handle: async ({ clients }, request) => {
    const { path, caller, call } = request;
    const ticketId = newTicket('j', BigInt(caller.appNumber));
    const idempotency = idempotencyOfJson(request);
    const job = await clients.data.rotateDataKey({ appId: path.app_id, ticketId, idempotency }, call);
    const body = { success: true, message: 'Encrypted fields have a new key', ticket_id: job.ticketId };
    return accepted(job.ticketId, body, replayedHeader(job.replayed === true));
  },
});

const quoteJson = (priceUtia: number, [first]: readonly Requirement[]) => ({
  quote_id: first?.extra.quoteId ?? null,
  expires_at: first ? new Date(first.extra.pricing.expiresAt * 1_000).toISOString() : null,
  price_utia: priceUtia,
  x402Version: 1,
  error: '',
  accepts: [] as unknown,
});
