import { z } from 'zod';
import { invalid } from '@granary/shared/errors';
import { newTicket } from '@granary/shared/ids';
import { accepted, json, JsonText } from '../http/answer';
import { route } from '../pipeline/route';
import {
  exampleTicket,
  fieldPathSchema,
  nameSchema,
  objectSchema,
  ticketSchema,
  timeSchema,
} from '../validation/schemas';
import { anyField, pricedIndex, priceOfIndex } from '../paying/paid-indexes';
import { offerRequest } from '../paying/payment-required';
import { idempotencyHeader, idempotencyOfJson, replayedHeader } from '../pipeline/idempotency';

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
    const price = await priceOfIndex(gateway, request, field);
    if (price === 'free') return json(200, quoteJson(0, []));
    const offer = await gateway.clients.payments.offerRead(
      await offerRequest(gateway, pricedIndex(request, field), price),
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
