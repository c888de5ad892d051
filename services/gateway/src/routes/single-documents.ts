import { z } from 'zod';
import { newTicket } from '@granary/shared/ids';
import type { ChangeDocumentResponse } from '@granary/shared/gen/granary/data/v1/ChangeDocumentResponse';
import { json, jsonBytes, type Answer } from '../http/answer';
import { hasPermission, requirePermission, type AppCaller } from '../pipeline/access';
import { idempotency, idempotencyHeader, replayedHeader } from '../pipeline/idempotency';
import { route, type RouteRequest } from '../pipeline/route';
import type { GatewayContext } from '../pipeline/gateway-context';
import { etagOfVersion, ifMatch, ifNoneMatch } from '../pipeline/versions';
import { flagParameter } from '../validation/parameters';
import { objectSchema } from '../validation/schemas';
import { idempotencyOfWrite, paidWriteResponses, payForWrite } from '../paying/paid-writes';
import type { Unpaid, WriteTerms } from '../paying/priced-write';
import { paymentHeaders } from '../paying/payment-docs';

const path = '/apps/{app_id}/collections/{collection}/documents/{document_id}';
/** The limit of a body in bytes: a document with white space. */
const limitBytes = 2 * 1024 * 1024;
const etagHeader = { ETag: 'The version of the document in quotes' };
const example = { id: 'first', text: 'Hello', stars: 5 };
const documentSchema = objectSchema.describe('The document as it is stored');

const matchHeader = {
  'If-Match': { description: 'ETags, or `*`: 412 when the document is in none of these versions', example: '"3"' },
};
const conditionHeaders = {
  ...matchHeader,
  'If-None-Match': { description: '`*`: 412 when there is such a document. ETags: 412 when it is in one of them' },
};

const notFound = {
  description: 'There is no such document, or it is deleted',
  codes: ['COLLECTION_NOT_FOUND', 'DOCUMENT_NOT_FOUND'],
} as const;
const refusals = {
  409: { description: 'A unique value is taken', codes: ['UNIQUE_VIOLATION', 'REQUEST_IN_PROGRESS'] },
  412: { description: 'The document is in another version', codes: ['PRECONDITION_FAILED'] },
  413: { description: 'The document is too large', codes: ['DOCUMENT_TOO_LARGE'] },
  422: {
    description: 'The document violates the schema, or the Idempotency-Key was used for other content',
    codes: ['SCHEMA_VIOLATION', 'IDEMPOTENCY_KEY_REUSED'],
  },
} as const;

const erasedSchema = z.object({
  id: z.string().describe('Id of the document'),
  erased: z.literal(true).describe('Always true'),
  versions: z.int().describe('How many versions were erased'),
});

const deletedSchema = z.object({
  id: z.string().describe('Id of the document'),
  version: z.int().describe('The version that marks it as deleted'),
  deleted: z.literal(true).describe('Always true'),
});

export const singleDocumentRoutes = [
  route({
    method: 'GET',
    path,
    id: 'getDocument',
    summary: 'Read one document',
    description: 'Its latest version, byte for byte as it is stored.',
    tag: 'Documents',
    auth: { kind: 'app', permission: 'Read' },
    headers: { 'If-None-Match': { description: 'ETags, or `*`: 304 when the document is in one of these versions' } },
    responses: {
      200: { description: 'The document', schema: documentSchema, example, headers: etagHeader },
      304: { description: 'The document is in a version that `If-None-Match` names' },
      404: notFound,
    },
    handle: async ({ clients }, request) => {
      const { app_id: appId, collection, document_id: id } = request.path;
      const document = await clients.data.getDocument(
        { appId, collection, id, ifNoneMatch: ifNoneMatch(request) ?? null },
        request.call,
      );
      const headers = { ETag: etagOfVersion(document.version) };
      return document.json.length === 0
        ? { status: 304, body: undefined, headers }
        : jsonBytes(200, document.json, headers);
    },
  }),
  route({
    method: 'PUT',
    path,
    id: 'putDocument',
    summary: 'Write one document',
    description:
      'The body becomes the document, or its new version; the older one is kept as history. `id` may be left out of it. ' +
      'A collection that does not exist is created.',
    tag: 'Documents',
    auth: { kind: 'app', permission: 'Write' },
    headers: { ...idempotencyHeader, ...conditionHeaders, ...paymentHeaders },
    body: {
      kind: 'raw',
      content: { 'application/json': { schema: objectSchema.describe('The document'), example } },
      limitBytes,
    },
    responses: {
      200: { description: 'A new version', schema: documentSchema, example, headers: etagHeader },
      201: { description: 'A new document', schema: documentSchema, example, headers: etagHeader },
      ...refusals,
      ...paidWriteResponses,
    },
    handle: (context, request) =>
      payForWrite(context, request, {
        price: priceOf(request),
        run: async (terms) => {
          const changed = await change(context, request, 'put', request.body, terms);
          if ('isUnpaid' in changed) return changed;
          const { app_id: appId, collection, document_id: id } = request.path;
          const location = `/api/apps/${appId}/collections/${collection}/documents/${encodeURIComponent(id)}`;
          const { json, created } = changed.response;
          const headers = { ...headersOf(changed), ...(created ? { Location: location } : {}) };
          return jsonBytes(created ? 201 : 200, json, headers);
        },
      }),
  }),
  route({
    method: 'PATCH',
    path,
    id: 'patchDocument',
    summary: 'Change one document',
    description:
      'The body is a JSON merge patch (RFC 7396), also as `application/merge-patch+json`: its members replace those of the document, null removes one, objects ' +
      'are merged. Members that it does not name keep their text.',
    tag: 'Documents',
    auth: { kind: 'app', permission: 'Write' },
    headers: { ...idempotencyHeader, ...conditionHeaders, ...paymentHeaders },
    body: {
      kind: 'raw',
      content: {
        'application/json': { schema: objectSchema.describe('The merge patch'), example: { stars: 4 } },
      },
      alsoTaken: ['application/merge-patch+json'],
      limitBytes,
    },
    responses: {
      200: { description: 'The new version', schema: documentSchema, example, headers: etagHeader },
      404: notFound,
      ...refusals,
      ...paidWriteResponses,
    },
    handle: (context, request) =>
      payForWrite(context, request, {
        price: priceOf(request),
        run: async (terms) => {
          const changed = await change(context, request, 'merge', request.body, terms);
          if ('isUnpaid' in changed) return changed;
          return jsonBytes(200, changed.response.json, headersOf(changed));
        },
      }),
  }),
  route({
    method: 'DELETE',
    path,
    id: 'deleteDocument',
    summary: 'Delete one document',
    description:
      'Marks the document as deleted in a new version: reads leave it out, but for `/list`, and its history is kept. ' +
      'With `erase=true`, which needs `Admin`, the text of all versions is erased, of a deleted document too, and the id is ' +
      'free again; the commits keep the hashes of the texts. Views of the collection have no rows until their refresh, ' +
      'which is queued.',
    tag: 'Documents',
    auth: { kind: 'app', permission: 'Write' },
    headers: { ...idempotencyHeader, ...matchHeader },
    query: z.strictObject({
      erase: flagParameter.optional().describe('`true`: erase the text of all versions; needs `Admin`'),
    }),
    responses: {
      200: {
        description: 'It is deleted or erased',
        schema: z.union([deletedSchema, erasedSchema]),
        example: { id: 'first', version: 2, deleted: true },
        headers: etagHeader,
      },
      404: notFound,
      409: { description: 'The same request is still running', codes: ['REQUEST_IN_PROGRESS'] },
      412: refusals[412],
      422: { description: 'The Idempotency-Key was used for other content', codes: ['IDEMPOTENCY_KEY_REUSED'] },
    },
    handle: async (context, request) => {
      if (request.query.erase === true) return erase(context, request);
      const changed = await change(context, request, 'delete', Buffer.alloc(0), { isPaid: true, call: request.call });
      if ('isUnpaid' in changed) throw new Error('a deletion was refused for its price');
      const { version } = changed.response;
      const text = `{"id":${JSON.stringify(request.path.document_id)},"version":${version},"deleted":true}`;
      return jsonBytes(200, Buffer.from(text), headersOf(changed));
    },
  }),
];

interface Changed {
  response: ChangeDocumentResponse;
  isReplayed: boolean;
}

async function change(
  { clients }: GatewayContext,
  request: RouteRequest<'app_id' | 'collection' | 'document_id', AppCaller>,
  kind: 'put' | 'merge' | 'delete',
  body: Buffer,
  terms: WriteTerms,
): Promise<Changed | Unpaid> {
  const { caller } = request;
  const { collection, document_id: id } = request.path;
  const ticketId = terms.heldTicket ?? newTicket('c', BigInt(caller.appNumber));
  const conditions = { ifMatch: ifMatch(request) ?? null, ifNoneMatch: ifNoneMatch(request) ?? null };
  // A repeated request no longer meets its conditions, but they are part of its content.
  const content = () => Buffer.concat([Buffer.from(JSON.stringify(conditions)), body]);
  // The call is written without spreads, which cost more here than all else in this function.
  const response = await clients.data.changeDocument(
    {
      ifMatch: conditions.ifMatch,
      ifNoneMatch: conditions.ifNoneMatch,
      appId: caller.appId,
      appNumber: caller.appNumber,
      ticketId,
      collection,
      id,
      change: kind,
      body,
      idempotency: idempotencyOfWrite(request, terms, content),
      isPaid: terms.isPaid,
      isHeld: terms.heldTicket !== undefined,
      mayReadPrivate: hasPermission(caller, 'Read'),
      acceptsPrice: true,
    },
    terms.call,
  );
  if (response.unpaid) return { isUnpaid: true, prices: response.unpaid };
  return { response, isReplayed: response.ticketId !== ticketId };
}

/** The parts of a request that the price of writing its body depends on. */
const priceOf = ({ path: { collection }, body }: RouteRequest<'collection', AppCaller, unknown, Buffer>) => ({
  collection,
  body,
  sizeBytes: '0',
});

async function erase(
  { clients }: GatewayContext,
  request: RouteRequest<'app_id' | 'collection' | 'document_id', AppCaller>,
): Promise<Answer> {
  const { caller, call } = request;
  requirePermission(caller, 'Admin');
  const { collection, document_id: id } = request.path;
  const conditions = { ifMatch: ifMatch(request) ?? null };
  const content = () => Buffer.from(`erase ${JSON.stringify(conditions)}`);
  const { versions, replayed } = await clients.data.eraseDocument(
    {
      ...conditions,
      appId: caller.appId,
      appNumber: caller.appNumber,
      collection,
      id,
      idempotency: idempotency(request, content),
    },
    call,
  );
  return json(200, { id, erased: true, versions: Number(versions) }, replayedHeader(replayed === true));
}

const headersOf = ({ response, isReplayed }: Changed): Answer['headers'] => ({
  ETag: etagOfVersion(response.version),
  ...replayedHeader(isReplayed),
});
