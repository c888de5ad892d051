import { z } from 'zod';
import { forbidden, invalid, notFound, ServiceError } from '@granary/shared/errors';
import type { UploadPermit } from '@granary/shared/trust/transfer-permit';
import type { Call } from '@granary/shared/rpc/types';
import { newDocumentId, newTicket } from '@granary/shared/ids';
import { clientKeys } from '../admission/client-budget';
import { accepted, jsonBytes, taskLocation, type Answer } from '../http/answer';
import { requirePermission, type AppCaller, type Caller } from '../pipeline/access';
import {
  callerName,
  idempotencyHeader,
  idempotencyKey,
  idempotencyOfJson,
  paidCallerName,
  paidKey,
  replayedHeader,
} from '../pipeline/idempotency';
import { tooLarge, unauthenticated } from '../errors/problem';
import { canonicalPathOf, route, type Route, type RouteRequest } from '../pipeline/route';
import type { GatewayContext } from '../pipeline/gateway-context';
import { createdCollectionSchema, exampleTicket, ticketField } from '../validation/schemas';
import { paidWriteResponses, payForWrite } from '../paying/paid-writes';
import type { WriteTerms } from '../paying/priced-write';
import { paymentHeaders } from '../paying/payment-docs';

/** Bytes of a multipart body besides the file: the metadata and the form around it. */
const formOverheadBytes = 128 * 1024;

const uploaded = z.object({
  ticket_id: ticketField,
  blob_id: z.string().describe('Id of the blob and of its metadata document'),
  status: z.literal('Completed').describe('The write is durable'),
  message: z.string().describe('Text for people'),
});
const deleted = z.object({ ...uploaded.shape, celestia_height: z.int().positive().describe('Height of the commit') });

const file = z.string().meta({ format: 'binary', description: 'The bytes of the blob' });
const form = z.strictObject({
  blob: file,
  metadata: z
    .string()
    .optional()
    .meta({ contentMediaType: 'application/json' })
    .describe('A JSON object as text, at most 64 KiB: fields of the metadata document'),
});
/** A blob has the content type of its upload; client generators need the first of these. */
const anyBytes = ['application/octet-stream', '*/*'] as const;

type Path = 'app_id' | 'collection';

type UploadRequest = RouteRequest<Path, AppCaller>;

/** Streams an upload to the blobs service, which stores it and commits it with its metadata document. */
export const uploadBlob = (context: GatewayContext, request: UploadRequest): Promise<Answer> =>
  payForUpload(context, request, undefined);

/** The same under an id that the client has chosen, of the form of those that the service makes. */
export function putBlob(context: GatewayContext, request: RouteRequest<Path | 'blob_id', AppCaller>): Promise<Answer> {
  const { blob_id: blobId } = request.path;
  if (!uuid.test(blobId)) throw invalid('The id of the blob is not valid', { blob_id: [uuidRule] });
  return payForUpload(context, request, blobId);
}

const uuid = /^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$/;
const uuidRule = 'must be a UUID in lower case, as 0190f3a2-b4c8-7d6e-8f90-a1b2c3d4e5f6';

function payForUpload(context: GatewayContext, request: UploadRequest, chosenId: string | undefined): Promise<Answer> {
  const { incoming, path } = request;
  const { MAX_BLOB_BYTES: maxBytes } = context.config;
  if (/^application\/x-www-form-urlencoded\b/i.test(incoming.headers['content-type'] ?? '')) throw typeOfForm();
  const length = incoming.headers['content-length'];
  if (Number(length ?? 0) > maxBytes + formOverheadBytes) throw tooLarge(maxBytes);
  return payForWrite(context, request, {
    price: { collection: path.collection, body: Buffer.alloc(0), sizeBytes: length },
    run: (terms) => upload(context, request, chosenId, terms),
  });
}

/** curl gives `--data-binary` this type by itself; stored with an image, it would keep browsers from showing it. */
const typeOfForm = () =>
  new ServiceError(
    'INVALID_ARGUMENT',
    'UNSUPPORTED_MEDIA_TYPE',
    'An upload cannot be application/x-www-form-urlencoded, which curl sends by default: name the type of the file, as ' +
      "by -H 'Content-Type: image/png'",
    { details: { expected: ['multipart/form-data', 'the type of the file'] } },
  );

async function upload(
  context: GatewayContext,
  request: UploadRequest,
  chosenId: string | undefined,
  { isPaid, payment, heldTicket }: WriteTerms,
): Promise<Answer> {
  const { incoming, path, caller, call } = request;
  const [key, askedBy] =
    payment === undefined ? [idempotencyKey(request), callerName(caller)] : [paidKey(payment), paidCallerName(caller)];
  const ticketId = heldTicket ?? newTicket('c', BigInt(caller.appNumber));
  const permit: UploadPermit = {
    op: 'upload',
    appId: path.app_id,
    appNumber: caller.appNumber,
    collection: path.collection,
    ticketId,
    blobId: chosenId ?? newDocumentId(),
    isIdChosen: chosenId !== undefined,
    caller: askedBy,
    method: incoming.method,
    path: canonicalPathOf(request),
    idempotencyKey: key === '' ? null : key,
    maxBytes: context.config.MAX_BLOB_BYTES,
    isPaid,
    isHeld: heldTicket !== undefined,
  };
  const answer = await context.transfers.upload(keysOf(context, request), (transfer) =>
    context.blobProxy.upload(incoming, permit, call, transfer),
  );
  const { ticket_id: storedTicketId } = JSON.parse(answer.toString()) as { ticket_id: string };
  return jsonBytes(202, answer, { ...taskLocation(storedTicketId), ...replayedHeader(storedTicketId !== ticketId) });
}

/** GET and HEAD; the answer is streamed. */
export async function readBlob(context: GatewayContext, request: RouteRequest<Path | 'blob_id', Caller>) {
  const { incoming, outgoing, path, caller, call } = request;
  await context.transfers.download(keysOf(context, request), async (transfer) => {
    await checkAccess(context, path, caller, call);
    const permit = { op: 'read', appId: path.app_id, collection: path.collection, blobId: path.blob_id } as const;
    await context.blobProxy.read(incoming, outgoing, permit, call, transfer);
  });
  return undefined;
}

/** The app and the client address that a transfer counts towards. */
function keysOf({ addressOf }: GatewayContext, { path, incoming }: RouteRequest<Path>) {
  return clientKeys(path.app_id, addressOf(incoming));
}

/** A blob is as public as its collection. */
async function checkAccess(
  context: GatewayContext,
  path: Record<Path, string>,
  caller: Caller,
  call: Call,
): Promise<void> {
  const { app_id: appId, collection } = path;
  const { readAccess } = await context.clients.data
    .getCollection({ appId, collection }, call)
    .catch((error: unknown) => {
      if (error instanceof ServiceError && error.reason === 'COLLECTION_NOT_FOUND') throw blobNotFound();
      throw error;
    });
  if (readAccess !== 'private' || caller.kind === 'operator') return;
  if (caller.kind !== 'app') throw unauthenticated('The collection is private: an app key is needed');
  if (caller.appId !== appId) throw forbidden('The key belongs to another app');
  requirePermission(caller, 'Read');
}

export async function deleteBlob(context: GatewayContext, request: RouteRequest<Path | 'blob_id', AppCaller>) {
  const { path, caller, call } = request;
  const ticketId = newTicket('c', BigInt(caller.appNumber));
  const deletion = await context.clients.blobs.deleteBlob(
    {
      appId: path.app_id,
      appNumber: caller.appNumber,
      collection: path.collection,
      blobId: path.blob_id,
      ticketId,
      idempotency: idempotencyOfJson(request),
    },
    call,
  );
  const message = 'The blob is deleted';
  const answer = {
    ticket_id: deletion.ticketId,
    blob_id: path.blob_id,
    status: 'Completed',
    message,
    celestia_height: Number(deletion.height),
  };
  return accepted(deletion.ticketId, answer, replayedHeader(deletion.ticketId !== ticketId));
}

const blobNotFound = () => notFound('BLOB_NOT_FOUND', 'There is no such blob');

const blobHeaders = {
  ETag: 'Of the bytes',
  'Accept-Ranges': '`bytes`',
  'Content-Disposition': '`inline` or `attachment`, with the name of the uploaded file',
};
const exampleUpload = {
  ticket_id: exampleTicket,
  blob_id: '0190f3a2-b4c8-7d6e-8f90-a1b2c3d4e5f6',
  status: 'Completed',
};

/** The parts that both uploads have in common: under an id of the service, and under one of the client. */
const uploadRoute = {
  tag: 'Blobs',
  auth: { kind: 'app', permission: 'Write' },
  headers: {
    ...idempotencyHeader,
    ...paymentHeaders,
    'X-Blob-Metadata': {
      description:
        'Of a raw body: a JSON object, the fields of the metadata document. All headers together have 16 KiB; send ' +
        'more as the part `metadata`',
      example: '{"topic":"greeting"}',
    },
  },
  body: {
    kind: 'stream',
    content: {
      'multipart/form-data': { schema: form },
      // Any other content type is accepted too; client generators need this one.
      'application/octet-stream': { schema: file },
    },
  },
} as const;
const uploadResponses = {
  202: {
    description: 'Stored',
    schema: uploaded.extend({ created_collection: createdCollectionSchema }),
    example: { ...exampleUpload, message: 'The blob is stored' },
  },
  411: { description: 'The upload costs something, and has no Content-Length', codes: ['LENGTH_REQUIRED'] },
  413: { description: 'The blob or its metadata is too large' },
  415: { description: 'The body is compressed, or said to be the fields of a web form' },
  422: {
    description: 'The metadata document violates the schema, or the Idempotency-Key was used for another upload',
    codes: ['SCHEMA_VIOLATION', 'IDEMPOTENCY_KEY_REUSED'],
  },
  ...paidWriteResponses,
} as const;

export const blobRoutes: readonly Route[] = [
  route({
    method: 'POST',
    path: '/apps/{app_id}/blobs/{collection}',
    id: 'uploadBlob',
    summary: 'Store a file',
    description:
      'As multipart/form-data with the part `blob` and the optional part `metadata`, or as a raw body of any other ' +
      'content type with its metadata in `X-Blob-Metadata`. The blob gets a metadata document in the collection, ' +
      'whose id is the blob_id.',
    ...uploadRoute,
    responses: {
      ...uploadResponses,
      409: { description: 'A unique value is taken', codes: ['UNIQUE_VIOLATION'] },
    },
    handle: uploadBlob,
  }),
  route({
    method: 'PUT',
    path: '/apps/{app_id}/blobs/{collection}/{blob_id}',
    id: 'putBlob',
    summary: 'Store a file under an id of your own',
    description:
      'As the upload without an id, for a file that moves from elsewhere: documents that name it still do. It only ' +
      'creates. The id of a file that was deleted or erased is free again.',
    ...uploadRoute,
    responses: {
      ...uploadResponses,
      409: {
        description:
          'The collection has a file, or a document that is not deleted, with this id; or a unique value is taken',
        codes: ['ALREADY_EXISTS', 'UNIQUE_VIOLATION'],
      },
    },
    handle: putBlob,
  }),
  route({
    method: 'GET',
    path: '/apps/{app_id}/blobs/{collection}/{blob_id}',
    id: 'readBlob',
    summary: 'Read the bytes of a blob',
    description:
      'A blob is as public as its collection. Everything but raster images, audio and video is served as an attachment.',
    tag: 'Blobs',
    auth: { kind: 'reader' },
    headers: {
      Range: { description: 'One range of bytes; for several the whole blob is answered', example: 'bytes=0-1023' },
      'If-Range': { description: 'The ETag that the range is meant for; where it differs the whole blob is answered' },
      'If-None-Match': { description: 'ETags, or `*`: 304 when the blob has one of them' },
      'If-Match': { description: 'ETags, or `*`: 412 when the blob has none of them' },
    },
    body: { kind: 'stream', content: {} },
    responses: {
      200: {
        description: 'The whole blob',
        schema: file,
        contentTypes: anyBytes,
        example: 'Hello, world',
        headers: blobHeaders,
      },
      206: {
        description: 'The range that was asked for',
        schema: file,
        contentTypes: anyBytes,
        example: 'Hello',
        headers: { ...blobHeaders, 'Content-Range': 'The range and the size of the whole blob' },
      },
      304: { description: 'The blob is the one that `If-None-Match` names' },
      307: {
        description: 'The bytes are at another address for five minutes (only where this is configured)',
        headers: { Location: 'The address of the bytes' },
      },
      412: { description: 'The blob is not the one that `If-Match` names', codes: ['PRECONDITION_FAILED'] },
      416: { description: 'The range is outside of the blob', codes: ['RANGE_NOT_SATISFIABLE'] },
    },
    handle: readBlob,
  }),
  route({
    method: 'DELETE',
    path: '/apps/{app_id}/blobs/{collection}/{blob_id}',
    id: 'deleteBlob',
    summary: 'Delete a blob',
    description: 'A commit of its own marks its metadata document as deleted.',
    tag: 'Blobs',
    auth: { kind: 'app', permission: 'Write' },
    headers: idempotencyHeader,
    responses: {
      202: {
        description: 'Deleted',
        schema: deleted,
        example: { ...exampleUpload, message: 'The blob is deleted', celestia_height: 7 },
      },
    },
    handle: deleteBlob,
  }),
];
