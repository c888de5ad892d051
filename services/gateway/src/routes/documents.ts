import { z } from 'zod';
import type { StoreResponse } from '@granary/shared/gen/granary/data/v1/StoreResponse';
import { newTicket } from '@granary/shared/ids';
import { appIdPattern, namePattern } from '@granary/shared/names';
import { jsonBytes, stringify, taskLocation } from '../http/answer';
import type { Code } from '../errors/codes';
import { pageEtagHeader, revalidationHeader, unchangedPage } from '../openapi/headers';
import type { AppCaller } from '../pipeline/access';
import type { GatewayContext } from '../pipeline/gateway-context';
import { idempotencyHeader, replayedHeader } from '../pipeline/idempotency';
import { bodyLimits, route, type RouteRequest } from '../pipeline/route';
import { selectableQuery } from '../validation/parameters';
import {
  createdCollectionSchema,
  createdJson,
  exampleTicket,
  findSchema,
  objectSchema,
  recordsSchema,
  selectSchema,
  ticketField,
} from '../validation/schemas';
import { idempotencyOfWrite, paidWriteResponses, payForWrite } from '../paying/paid-writes';
import type { Outcome, WriteTerms } from '../paying/priced-write';
import { paidReadHeaders, paymentHeaders, paymentResponses } from '../paying/payment-docs';
import { read } from './reads';

/** `app_id::name` */
const rootPattern = new RegExp(`${appIdPattern.source.slice(0, -1)}::${namePattern.source.slice(1)}`);

const documentSchema = objectSchema.describe(
  'A JSON object of at most 1 MiB and 64 levels. `id` (1 to 256 characters) is made where it is missing; ' +
    '`deleted: true` marks a soft delete',
);

const storeSchema = z.strictObject({
  root: z.string().regex(rootPattern).describe('Where to: `app_id::collection`'),
  data: z
    .array(documentSchema)
    .min(1)
    .max(10_000)
    .describe('The documents; all of them are committed together, or none'),
});

export const listSchema = z.strictObject({
  root: z.string().regex(rootPattern).describe('What to read: `app_id::collection`, or `app_id::view`'),
  find: findSchema.nullish(),
  select: selectSchema.nullish(),
  limit: z.int().min(1).max(10_000).nullish().describe('Documents of the page, at most; by default 100'),
  offset: z.int().min(0).max(1_000_000).nullish().describe('Documents to skip before the page; by default 0'),
  sortBy: z.string().nullish().describe('The field to sort by, where it is only one; see `sort`'),
  sortDirection: z
    .enum(['ascending', 'descending'])
    .nullish()
    .describe('The direction of `sortBy`; by default `ascending`'),
  sort: z.array(z.string()).max(16).nullish().describe('Fields to sort by; `-field` descends. Ties go by `id`'),
  include_history: z.boolean().nullish().describe('Older versions of the documents too'),
  count: z
    .enum(['exact', 'none'])
    .nullish()
    .describe('By default `exact`; `none`: `total` is null unless it is known without counting'),
  cursor: z
    .string()
    .nullish()
    .describe('`next_cursor` of the page before, with the same filter and order; instead of `offset`'),
});

const storedSchema = z.object({
  ticket_id: ticketField,
  status: z.literal('Completed').describe('The write is durable'),
  message: z.string().describe('Text for people'),
  results: z
    .array(
      z.object({
        id: z.string().describe('Id of the document'),
        celestia_height: z.int().describe('Height of the commit'),
        blob_id: z.string().describe('Hash of the commit'),
        namespace: z.string().describe('Namespace of the collection'),
      }),
    )
    .describe('One for each document, in their order'),
  created_collection: createdCollectionSchema,
});

/** The answers of every read by the query language. */
export const queryErrors = {
  400: {
    description: 'Malformed or invalid',
    codes: ['INVALID_QUERY', 'LIMIT_EXCEEDED', 'INVALID_CURSOR'] as readonly Code[],
  },
  413: { description: 'The result is too large', codes: ['RESULT_TOO_LARGE'] as readonly Code[] },
};

/** The errors of the reads that need no key, which have limits of their own. */
export const publicQueryErrors = {
  ...queryErrors,
  400: { ...queryErrors[400], codes: [...queryErrors[400].codes, 'SCAN_LIMIT_EXCEEDED'] as readonly Code[] },
};

export const documentRoutes = [
  route({
    method: 'POST',
    path: '/store',
    prefixes: ['', '/api'],
    id: 'store',
    summary: 'Store documents',
    description:
      'A document whose `id` exists becomes its new version; the older one is kept as history. A collection that does ' +
      'not exist is created.',
    tag: 'Documents',
    auth: { kind: 'app', permission: 'Write' },
    headers: { ...idempotencyHeader, ...paymentHeaders },
    body: {
      kind: 'raw',
      content: {
        'application/json': {
          schema: storeSchema,
          example: { root: 'demo::notes', data: [{ id: 'first', text: 'Hello', stars: 5 }] },
        },
      },
      limitBytes: bodyLimits.documentsBytes,
    },
    responses: {
      202: {
        description: 'They are stored',
        schema: storedSchema,
        example: {
          ticket_id: exampleTicket,
          status: 'Completed',
          message: 'The documents are stored',
          results: [{ id: 'first', celestia_height: 1, blob_id: '9f86d081…', namespace: 'demo::notes' }],
        },
      },
      409: { description: 'A unique value is taken', codes: ['UNIQUE_VIOLATION'] },
      413: { description: 'The body or a document is too large', codes: ['DOCUMENT_TOO_LARGE'] },
      422: {
        description: 'A document violates the schema, or the Idempotency-Key was used for other content',
        codes: ['SCHEMA_VIOLATION', 'IDEMPOTENCY_KEY_REUSED'],
      },
      ...paidWriteResponses,
    },
    handle: (gateway, request) =>
      payForWrite(gateway, request, {
        price: { collection: '', body: request.body, sizeBytes: '0' },
        run: (terms) => store(gateway, request, terms),
      }),
  }),
  route({
    method: 'POST',
    path: '/list',
    prefixes: ['', '/api'],
    id: 'list',
    summary: 'Query the documents of a collection or a view',
    description:
      'Returns the latest versions, soft-deleted documents among them. Filters by any field, indexed or not.',
    tag: 'Documents',
    auth: { kind: 'app', permission: 'Read' },
    body: {
      kind: 'raw',
      content: {
        'application/json': {
          schema: listSchema,
          example: { root: 'demo::notes', find: { stars: { gte: 4 } }, sort: ['-stars'], limit: 10 },
        },
      },
      limitBytes: bodyLimits.definitionBytes,
    },
    responses: { 200: { description: 'A page of documents', schema: recordsSchema }, ...queryErrors },
    handle: async ({ clients }, { caller, body, call }) =>
      jsonBytes(200, (await clients.data.listDocuments({ appId: caller.appId, body }, call)).json),
  }),
  route({
    method: 'GET',
    path: '/apps/{app_id}/collections/{collection}/data',
    id: 'readCollection',
    summary: 'Read a collection by equality filters on indexed fields',
    description: 'Soft-deleted documents are left out.',
    tag: 'Documents',
    auth: { kind: 'reader' },
    query: {
      reserved: selectableQuery,
      others: {
        name: 'filters',
        description:
          'Any number of parameters, each named after an indexed field (dotted for a nested one): equality with the ' +
          'value, or an operator as a suffix (`price.$gte=10`). A field with a reserved name is reached as `field.$eq`',
        example: { id: 'first' },
      },
    },
    headers: { ...revalidationHeader, ...paidReadHeaders },
    responses: {
      200: { description: 'A page of documents', schema: recordsSchema, headers: pageEtagHeader },
      ...unchangedPage,
      ...publicQueryErrors,
      400: { description: 'Malformed or invalid', codes: [...publicQueryErrors[400].codes, 'FIELD_NOT_INDEXED'] },
      ...paymentResponses,
    },
    handle: (gateway, request) =>
      read(gateway, request, request.path.collection, (message) =>
        gateway.clients.data.readCollection(message, request.call),
      ),
  }),
];

async function store(
  { clients }: GatewayContext,
  request: RouteRequest<never, AppCaller, unknown, Buffer>,
  terms: WriteTerms,
): Promise<Outcome> {
  const { caller, body } = request;
  const ticketId = terms.heldTicket ?? newTicket('c', BigInt(caller.appNumber));
  const stored = await clients.data.store(
    {
      appId: caller.appId,
      appNumber: caller.appNumber,
      ticketId,
      body,
      idempotency: idempotencyOfWrite(request, terms, () => body),
      isPaid: terms.isPaid,
      isHeld: terms.heldTicket !== undefined,
      acceptsPrice: true,
    },
    terms.call,
  );
  if (stored.unpaid) return { isUnpaid: true, prices: stored.unpaid };
  // The answer to a repeated request contains the ticket of the first one.
  const headers = { ...taskLocation(stored.ticketId), ...replayedHeader(stored.ticketId !== ticketId) };
  return jsonBytes(202, storedAnswer(stored), headers);
}

/** The results are JSON text, some 200 KB for a bulk, which is passed through unparsed. */
function storedAnswer({ ticketId, resultsJson, createdCollection: created }: StoreResponse): Buffer {
  const head = `{"ticket_id":${JSON.stringify(ticketId)},"status":"Completed","message":"The documents are stored","results":`;
  const end = created ? Buffer.from(`,"created_collection":${stringify(createdJson(created))}}`) : closingBrace;
  return Buffer.concat([Buffer.from(head), resultsJson, end]);
}

const closingBrace = Buffer.from('}');
