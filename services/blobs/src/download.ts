import type { IncomingMessage, ServerResponse } from 'node:http';
import { pipeline } from 'node:stream/promises';
import { ServiceError } from '@granary/shared/errors';
import type { ReadGrant } from '@granary/shared/grant';
import type { ByteRange } from '@granary/shared/objects/store';
import { blobNotFound, findBlob, type Blob } from './blobs';
import { wanted } from './conditions';
import { contentDisposition } from './content';
import type { BlobsContext } from './context';
import { settleUpload } from './settling';

/** The blob, if it is visible: a blob is, from the moment that data has committed it. Throws BLOB_NOT_FOUND. */
export async function findVisible(
  context: BlobsContext,
  appId: string,
  collection: string,
  blobId: string,
): Promise<Blob> {
  const blob = await findBlob(context.pool, appId, collection, blobId);
  if (!blob) throw blobNotFound();
  if (blob.state === 'pending' && !(await settleUpload(context, blob))) throw blobNotFound();
  return blob;
}

/**
 * Answers GET and HEAD of a blob, whole or in part. Errors before the first byte are thrown; after it the connection
 * is cut. A reader that goes away closes the object.
 */
export async function download(
  context: BlobsContext,
  request: IncomingMessage,
  response: ServerResponse,
  grant: ReadGrant,
): Promise<void> {
  const blob = await findVisible(context, grant.appId, grant.collection, grant.blobId);
  const sizeBytes = Number(blob.sizeBytes);
  const etag = `"${blob.sha256}"`;
  const answer = wanted(request.method ?? 'GET', request.headers, etag, sizeBytes);
  if (answer.kind === 'precondition-failed') {
    throw new ServiceError('FAILED_PRECONDITION', 'PRECONDITION_FAILED', 'The blob is not the one that If-Match names');
  }
  if (answer.kind === 'unsatisfiable') {
    response.setHeader('Content-Range', `bytes */${sizeBytes}`);
    const message = `The range lies outside of the blob, which has ${sizeBytes} bytes`;
    throw new ServiceError('OUT_OF_RANGE', 'RANGE_NOT_SATISFIABLE', message, { details: { size_bytes: sizeBytes } });
  }
  response.setHeader('ETag', etag);
  // The bytes never change, but the blob may be deleted and a public collection become private.
  response.setHeader('Cache-Control', 'private, no-cache');
  if (answer.kind === 'not-modified') {
    response.writeHead(304).end();
    return;
  }
  const range = answer.kind === 'part' ? answer.range : undefined;
  describe(response, blob, sizeBytes, range);
  if (request.method === 'HEAD' || sizeBytes === 0) {
    response.writeHead(200).end();
    return;
  }
  const bytes = await context.store.read(blob.objectKey!, range);
  if (!bytes) {
    if (!(await findBlob(context.pool, grant.appId, grant.collection, grant.blobId))) throw blobNotFound();
    throw new Error(`the object of blob ${blob.blobId} is gone`);
  }
  response.writeHead(range ? 206 : 200);
  await pipeline(bytes, response);
}

function describe(response: ServerResponse, blob: Blob, sizeBytes: number, range: ByteRange | undefined): void {
  const headers = {
    'Content-Type': blob.contentType,
    'Content-Length': range ? range.end - range.start + 1 : sizeBytes,
    ...(range && { 'Content-Range': `bytes ${range.start}-${range.end}/${sizeBytes}` }),
    'Accept-Ranges': 'bytes',
    'Content-Disposition': contentDisposition(blob.contentType, blob.filename),
    'X-Content-Type-Options': 'nosniff',
    'Content-Security-Policy': "sandbox; default-src 'none'",
    'Cross-Origin-Resource-Policy': 'cross-origin',
  };
  for (const [name, value] of Object.entries(headers)) response.setHeader(name, value);
}
