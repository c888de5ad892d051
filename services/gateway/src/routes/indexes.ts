import { z } from 'zod';
import { newTicket } from '@granary/shared/ids';
import { accepted, json, type Answer } from '../http/answer';
import type { AppCaller } from '../pipeline/access';
import type { GatewayContext } from '../pipeline/gateway-context';
import { idempotencyHeader, idempotencyOfJson, paidIdempotencyOfJson, replayedHeader } from '../pipeline/idempotency';
import { listed, listing, listingHeaders, listingQuery } from '../pipeline/listing';
import { indexDefinition, indexJson, indexSchema, languageOf, namedDefinition } from '../validation/index-definition';
import { priceMessage } from '../validation/index-prices';
import { bodyLimits, route, type RouteRequest } from '../pipeline/route';
import { exampleTicket, exampleTime, successSchema, ticketSchema } from '../validation/schemas';
import { payForIndex } from '../paying/paid-indexes';
import { encryptedQuoteRoute, rotateDataKeyRoute } from './encrypted-indexes';
import { indexAnswer, indexAnswers } from './index-answer';
import { paidWriteResponses } from '../paying/paid-writes';
import type { WriteTerms } from '../paying/priced-write';
import { paymentHeaders } from '../paying/payment-docs';

const read = { kind: 'app', permission: 'Read' } as const;
const admin = { kind: 'app', permission: 'Admin' } as const;
const tag = 'Indexes';
const collectionPath = '/apps/{app_id}/collections/{collection}/indexes';
const indexPath = `${collectionPath}/{index_name}` as const;

const indexInUse = {
  description: 'The schema or a predefined query needs it',
  codes: ['INDEX_IN_USE'],
} as const;

const indexesResponses = {
  200: { description: 'The indexes', schema: z.array(indexSchema), headers: listingHeaders },
  400: { description: 'A parameter is invalid', codes: ['INVALID_CURSOR'] },
} as const;

export const indexRoutes = [
  route({
    method: 'POST',
    path: '/apps/{app_id}/indexes',
    id: 'createIndex',
    summary: 'Create an index',
    description:
      'A small collection is indexed at once (201), a larger one while writes go on (202). A collection that does not ' +
      'exist is created; where another one has nearly its name, `warnings` says so. ' +
      'The same definition again changes the prices that it has. An `encrypted` index costs something, which an agent ' +
      'key, a grant or an x402 payment pays: see docs/encryption.md.',
    tag,
    auth: admin,
    headers: { ...idempotencyHeader, ...paymentHeaders },
    body: {
      kind: 'json',
      schema: indexDefinition,
      example: { name: 'by_stars', collection: 'notes', field_name: 'stars', index_type: 'number' },
      limitBytes: bodyLimits.definitionBytes,
    },
    responses: {
      ...indexAnswers,
      400: { description: 'Malformed or invalid', codes: ['LIMIT_EXCEEDED'] },
      409: {
        description:
          'The name is taken by another definition, the field has a full text, documents have equal values or values ' +
          'of another type, or the field is encrypted or cannot be encrypted any more',
        codes: ['ALREADY_EXISTS', 'UNIQUE_VIOLATION', 'ENCRYPTION_CONFLICT', 'DOCUMENTS_DO_NOT_FIT'],
      },
      ...paidWriteResponses,
      503: { description: 'There is no key for encrypted fields', codes: ['ENCRYPTION_UNAVAILABLE'] },
    },
    handle: (gateway, request) => {
      const { body } = request;
      const definition = namedDefinition(body);
      const run = (terms: WriteTerms) => createIndex(gateway, request, definition, terms);
      if (definition.indexType !== 'encrypted') return run({ isPaid: false, call: request.call });
      return payForIndex(gateway, request, { collection: body.collection, fieldName: definition.fieldName }, run);
    },
  }),
  route({
    method: 'GET',
    path: '/apps/{app_id}/indexes',
    id: 'listIndexes',
    summary: 'List the indexes of an application, as a bare array',
    description: 'Of all its collections.',
    tag,
    auth: read,
    query: listingQuery,
    responses: indexesResponses,
    handle: async ({ clients }, request) => {
      const { path, query, call } = request;
      const page = await clients.data.listIndexes({ appId: path.app_id, collection: '', ...listing(query) }, call);
      return listed(request, page.indexes.map(indexJson), page.nextCursor);
    },
  }),
  encryptedQuoteRoute,
  rotateDataKeyRoute,
  route({
    method: 'DELETE',
    path: '/apps/{app_id}/indexes/{index_name}',
    id: 'deleteIndexOfApplication',
    summary: 'Delete an index by the name <collection>_<field>_index',
    description: 'An older spelling of deleteIndex.',
    undocumented: 'alias',
    tag,
    auth: admin,
    headers: idempotencyHeader,
    responses: { 200: { description: 'It is gone', schema: successSchema }, 409: indexInUse },
    handle: async ({ clients }, request) => {
      const { path, call } = request;
      const deleted = await clients.data.deleteIndex(
        {
          appId: path.app_id,
          collection: '',
          name: path.index_name,
          ticketId: '',
          idempotency: idempotencyOfJson(request),
        },
        call,
      );
      return json(
        200,
        { success: true, message: `Index ${path.index_name} is deleted` },
        replayedHeader(deleted.replayed === true),
      );
    },
  }),
  route({
    method: 'GET',
    path: collectionPath,
    id: 'listIndexesOfCollection',
    summary: 'List the indexes of a collection, as a bare array',
    description: 'Those that its schema made are among them.',
    tag,
    auth: read,
    query: listingQuery,
    responses: indexesResponses,
    handle: async ({ clients }, request) => {
      const { path, query, call } = request;
      const rpcRequest = { appId: path.app_id, collection: path.collection, ...listing(query) };
      const page = await clients.data.listIndexes(rpcRequest, call);
      return listed(request, page.indexes.map(indexJson), page.nextCursor);
    },
  }),
  route({
    method: 'GET',
    path: indexPath,
    id: 'getIndex',
    summary: 'Read an index',
    description: 'Its definition, state and size.',
    tag,
    auth: read,
    responses: { 200: { description: 'The index', schema: indexSchema } },
    handle: async ({ clients }, { path, call }) =>
      json(200, indexJson(await clients.data.getIndex(indexRequest(path), call))),
  }),
  route({
    method: 'DELETE',
    path: indexPath,
    id: 'deleteIndex',
    summary: 'Delete an index',
    description:
      'A build under way is cancelled. An index that the schema declares, or by which a predefined query finds or sorts its ' +
      'records, is needed and stays.',
    tag,
    auth: admin,
    headers: idempotencyHeader,
    responses: {
      200: {
        description: 'It is gone',
        schema: successSchema,
        example: { success: true, message: 'Index by_stars is deleted' },
      },
      409: indexInUse,
    },
    handle: async ({ clients }, request) => {
      const { path, call } = request;
      const deleted = await clients.data.deleteIndex(
        { ...indexRequest(path), idempotency: idempotencyOfJson(request) },
        call,
      );
      return json(
        200,
        { success: true, message: `Index ${path.index_name} is deleted` },
        replayedHeader(deleted.replayed === true),
      );
    },
  }),
  route({
    method: 'GET',
    path: `${indexPath}/status`,
    id: 'getIndexStatus',
    summary: 'Read the state of an index',
    description: 'Whether it is built, and why not.',
    tag,
    auth: read,
    responses: {
      200: {
        description: 'The state',
        schema: indexSchema
          .pick({ name: true, status: true, error: true, created_at: true })
          .extend({ building: z.boolean().describe('Whether the status is `building`') }),
        example: { name: 'by_stars', status: 'ready', error: null, created_at: exampleTime, building: false },
      },
    },
    handle: async ({ clients }, { path, call }) => {
      const { name, status, error, created_at } = indexJson(await clients.data.getIndex(indexRequest(path), call));
      return json(200, { name, status, error, created_at, building: status === 'building' });
    },
  }),
  route({
    method: 'GET',
    path: `${indexPath}/statistics`,
    id: 'getIndexStatistics',
    summary: 'Read the size of an index',
    description: 'In bytes and entries.',
    tag,
    auth: read,
    responses: {
      200: {
        description: 'Its size',
        schema: indexSchema
          .pick({ name: true, size_bytes: true, entry_count: true })
          .extend({ size: z.int().describe('The same as `size_bytes`') }),
        example: { name: 'by_stars', size_bytes: 16_384, entry_count: 1, size: 16_384 },
      },
    },
    handle: async ({ clients }, { path, call }) => {
      const index = indexJson(await clients.data.getIndex(indexRequest(path), call));
      const { name, size_bytes, entry_count } = index;
      return json(200, { name, size_bytes, entry_count, size: size_bytes });
    },
  }),
  route({
    method: 'POST',
    path: `${indexPath}/rebuild`,
    id: 'rebuildIndex',
    summary: 'Build an index again',
    description: 'From the documents, by a task.',
    tag,
    auth: admin,
    headers: idempotencyHeader,
    responses: {
      202: {
        description: 'It is being built',
        schema: ticketSchema,
        example: { success: true, message: 'Index by_stars is being rebuilt', ticket_id: exampleTicket },
      },
    },
    handle: async ({ clients }, request) => {
      const { path, caller, call } = request;
      const rpcRequest = {
        ...indexRequest(path),
        idempotency: idempotencyOfJson(request),
        ticketId: newTicket('j', BigInt(caller.appNumber)),
      };
      const job = await clients.data.rebuildIndex(rpcRequest, call);
      const message = `Index ${path.index_name} is being rebuilt`;
      const body = { success: true, message, ticket_id: job.ticketId };
      return accepted(job.ticketId, body, replayedHeader(job.replayed === true));
    },
  }),
];

function indexRequest(path: { app_id: string; collection: string; index_name: string }) {
  return { appId: path.app_id, collection: path.collection, name: path.index_name, ticketId: '' };
}

async function createIndex(
  { clients }: GatewayContext,
  request: RouteRequest<'app_id', AppCaller, unknown, z.output<typeof indexDefinition>>,
  definition: ReturnType<typeof namedDefinition>,
  { isPaid, payment, heldTicket, call }: WriteTerms,
): Promise<Answer> {
  const { path, caller, body } = request;
  const made = await clients.data.createIndex(
    {
      appId: path.app_id,
      appNumber: caller.appNumber,
      ...definition,
      collection: body.collection,
      fields: body.fields ?? [],
      unique: body.unique_constraint === true || body.options?.unique === true,
      ...languageOf(body.options),
      ...(body.price_config && { priceConfig: priceMessage(body.price_config) }),
      ...(body.read_price_config && { readPriceConfig: priceMessage(body.read_price_config) }),
      ticketId: heldTicket ?? newTicket('j', BigInt(caller.appNumber)),
      idempotency: payment === undefined ? idempotencyOfJson(request) : paidIdempotencyOfJson(request, payment),
      isPaid,
      isHeld: heldTicket !== undefined,
      force: body.force ?? false,
    },
    call,
  );
  return indexAnswer(path.app_id, made);
}
