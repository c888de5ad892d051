import { z } from 'zod';
import { forbidden, ServiceError } from '@granary/shared/errors';
import type { Parameter } from '@granary/shared/gen/granary/data/v1/Parameter';
import type { ReadRequest } from '@granary/shared/gen/granary/data/v1/ReadRequest';
import type { StoreResponse } from '@granary/shared/gen/granary/data/v1/StoreResponse';
import { newTicket } from '@granary/shared/ids';
import { jsonBytes, taskLocation, type Answer } from '../answer';
import { hasPermission, type AnyReader } from '../auth';
import { idempotency, idempotencyHeader, replayedHeader } from '../idempotency';
import { limits, route, type RouteRequest } from '../route';
import { objectSchema, recordsSchema } from '../schemas';

const storeSchema = z.strictObject({
  root: z.string().describe('app_id::collection'),
  data: z.array(objectSchema).describe('All of them are committed together, or none'),
});

const listSchema = z.strictObject({
  root: z.string().describe('app_id::collection, or app_id::view'),
  find: objectSchema.nullish(),
  select: z.union([objectSchema, z.array(z.string()), z.string()]).nullish(),
  limit: z.int().min(1).max(10_000).nullish(),
  offset: z.int().min(0).max(1_000_000).nullish(),
  sortBy: z.string().nullish(),
  sortDirection: z.enum(['ascending', 'descending']).nullish(),
  sort: z.array(z.string()).nullish(),
  include_history: z.boolean().nullish(),
  count: z.enum(['exact', 'none']).nullish(),
  cursor: z.string().nullish().describe('next_cursor of the page before, of the same query; instead of an offset'),
});

export const documentRoutes = [
  route({
    method: 'POST',
    path: '/store',
    prefixes: ['', '/api'],
    id: 'store',
    summary: 'Store documents',
    tag: 'Documents',
    auth: { kind: 'app', permission: 'Write' },
    headers: idempotencyHeader,
    body: {
      kind: 'raw',
      contentTypes: ['application/json'],
      schema: storeSchema,
      example: { root: 'demo::notes', data: [{ id: 'first', text: 'Hello', stars: 5 }] },
      limitBytes: limits.documentsBytes,
    },
    responses: {
      202: {
        description: 'They are stored',
        schema: z.object({
          ticket_id: z.string(),
          status: z.literal('Completed'),
          message: z.string(),
          results: z.array(
            z.object({ id: z.string(), celestia_height: z.int(), blob_id: z.string(), namespace: z.string() }),
          ),
        }),
      },
      409: { description: 'UNIQUE_VIOLATION, or a request with the same Idempotency-Key is still running' },
      422: { description: 'A document violates the schema, or an Idempotency-Key was used for other content' },
    },
    handle: async ({ clients }, request) => {
      const { caller, body, call } = request;
      const ticketId = newTicket('c', BigInt(caller.appNumber));
      const stored = await clients.data.store(
        {
          appId: caller.appId,
          appNumber: caller.appNumber,
          ticketId,
          body,
          idempotency: idempotency(request, body),
        },
        call,
      );
      // A repeated request is answered with the ticket of the first one.
      const headers = { ...taskLocation(stored.ticketId), ...replayedHeader(stored.ticketId !== ticketId) };
      return jsonBytes(202, storedAnswer(stored), headers);
    },
  }),
  route({
    method: 'POST',
    path: '/list',
    prefixes: ['', '/api'],
    id: 'list',
    summary: 'Query the documents of a collection or a view',
    tag: 'Documents',
    auth: { kind: 'app', permission: 'Read' },
    body: {
      kind: 'raw',
      contentTypes: ['application/json'],
      schema: listSchema,
      example: { root: 'demo::notes', find: { stars: { gte: 4 } }, sort: ['-stars'], limit: 10 },
      limitBytes: limits.definitionBytes,
    },
    responses: { 200: { description: 'A page of documents', schema: recordsSchema } },
    handle: async ({ clients }, { caller, body, call }) =>
      jsonBytes(200, (await clients.data.listDocuments({ appId: caller.appId, body }, call)).json),
  }),
  route({
    method: 'GET',
    path: '/apps/{app_id}/collections/{collection}/data',
    id: 'readCollection',
    summary: 'Read a collection by equality filters on indexed fields',
    description:
      'Each parameter names an indexed field; reserved are limit, offset, sort, select, cursor and count. ' +
      'Public, unless the collection is private.',
    tag: 'Documents',
    auth: { kind: 'reader' },
    query: 'any',
    responses: { 200: { description: 'A page of documents', schema: recordsSchema } },
    handle: async ({ clients }, request) =>
      read(request, request.path.collection, (message) => clients.data.readCollection(message, request.call)),
  }),
];

/** A read by URL of a collection, a view or a predefined query: public, unless the data service says otherwise. */
export async function read(
  request: RouteRequest<'app_id', AnyReader, ReadonlyMap<string, string>>,
  name: string,
  send: (message: ReadRequest) => Promise<{ json: Buffer }>,
): Promise<Answer> {
  const { caller, path, query } = request;
  const mayReadPrivate =
    caller.kind === 'operator' ||
    (caller.kind === 'app' && caller.appId === path.app_id && hasPermission(caller, 'Read'));
  const parameters: Parameter[] = [];
  for (const [parameter, value] of query) parameters.push({ name: parameter, value });
  try {
    const { json: page } = await send({ appId: path.app_id, name, parameters, mayReadPrivate });
    return jsonBytes(200, page);
  } catch (error) {
    const isRefused =
      error instanceof ServiceError && (error.code === 'PERMISSION_DENIED' || error.code === 'UNAUTHENTICATED');
    // The service only knows that this caller may not; who has a key is told what is wrong with it.
    if (!isRefused || caller.kind !== 'app') throw error;
    throw forbidden(
      caller.appId === path.app_id ? 'The key lacks the permission Read' : 'The key belongs to another app',
    );
  }
}

/** The results come as JSON text, some 200 KB for a bulk, and stay the bytes that they are. */
function storedAnswer({ ticketId, resultsJson }: StoreResponse): Buffer {
  const head = `{"ticket_id":${JSON.stringify(ticketId)},"status":"Completed","message":"The documents are stored","results":`;
  return Buffer.concat([Buffer.from(head), resultsJson, closingBrace]);
}

const closingBrace = Buffer.from('}');
