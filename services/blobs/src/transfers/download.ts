import type { IncomingMessage, ServerResponse } from 'node:http';
import type { Readable } from 'node:stream';
import { ServiceError } from '@granary/shared/errors';
import {
  directReadHeader,
  storeLengthHeader,
  storeUrlHeader,
  type DownloadPermit,
} from '@granary/shared/trust/transfer-permit';
import type { ByteRange, ObjectStore } from '../stores/store';
import { flow } from '@granary/shared/http/pipe';
import { blobNotFound, findBlob, findBlobs, type Blob, type BlobId } from '../records/blobs';
import { evaluateConditions } from './conditions';
import { contentDisposition } from './content';
import type { BlobsContext } from '../records/context';
import { finishDeletion, reconcileUpload } from '../maintenance/reconciliation';

/** The bytes never change, but the blob may be deleted and a public collection become private. */
const cacheControl = 'private, no-cache';

/** The blob, if it is visible: from the moment at which `data` has committed it. Throws BLOB_NOT_FOUND. */
export async function findVisible(context: BlobsContext, id: BlobId): Promise<Blob> {
  const blob = await findIfVisible(context, id);
  if (!blob) throw blobNotFound();
  return blob;
}

/**
 * The same blob; undefined where there is none. Uploads and deletions that are under way are looked up first, because
 * one of them may have been committed. The upload of the row `ownRowId` does not count.
 */
export async function findIfVisible(
  context: BlobsContext,
  { appId, collection, blobId }: BlobId,
  ownRowId?: string,
): Promise<Blob | undefined> {
  const find = async () => {
    const blobs = await findBlobs(context.pool, appId, collection, blobId);
    return blobs.filter(({ rowId }) => rowId !== ownRowId);
  };
  let blobs = await find();
  let isChanged = false;
  for (const blob of blobs) {
    if (blob.state === 'pending') isChanged = (await reconcileUpload(context, blob)) || isChanged;
    else if (blob.deleteTicket !== null) isChanged = (await finishDeletion(context, blob)) || isChanged;
  }
  if (isChanged) blobs = await find();
  return blobs.find(({ state }) => state === 'stored');
}

/**
 * Answers GET and HEAD of a blob, whole or in part. A gateway that can read from the store itself gets the URL of the
 * object in place of the bytes. Errors before the first byte are thrown; after it the connection is cut. A reader that
 * goes away closes the object.
 */
export async function download(
  context: BlobsContext,
  request: IncomingMessage,
  response: ServerResponse,
  permit: DownloadPermit,
): Promise<void> {
  const blob = await findVisible(context, permit);
  const sizeBytes = Number(blob.sizeBytes);
  const etag = `"${blob.sha256}"`;
  const answer = evaluateConditions(request.method ?? 'GET', request.headers, etag, sizeBytes);
  if (answer.kind === 'precondition-failed') {
    throw new ServiceError('FAILED_PRECONDITION', 'PRECONDITION_FAILED', 'The blob is not the one that If-Match names');
  }
  if (answer.kind === 'unsatisfiable') {
    response.setHeader('Content-Range', `bytes */${sizeBytes}`);
    const message = `The range lies outside of the blob, which has ${sizeBytes} bytes`;
    throw new ServiceError('OUT_OF_RANGE', 'RANGE_NOT_SATISFIABLE', message, { details: { size_bytes: sizeBytes } });
  }
  response.setHeader('ETag', etag);
  response.setHeader('Cache-Control', cacheControl);
  if (answer.kind === 'not-modified') {
    response.writeHead(304).end();
    return;
  }
  const range = answer.kind === 'part' ? answer.range : undefined;
  const location = request.method === 'GET' && sizeBytes > 0 ? await presignedUrl(context.store, blob) : undefined;
  if (location !== undefined) {
    response.writeHead(307, { Location: location, 'Content-Length': 0 }).end();
    return;
  }
  describe(response, blob, sizeBytes, range);
  if (request.method === 'HEAD' || sizeBytes === 0) {
    response.writeHead(200).end();
    return;
  }
  const status = range ? 206 : 200;
  if (request.headers[directReadHeader] === '1' && context.store.readUrl) {
    response.setHeader(storeUrlHeader, await context.store.readUrl(blob.objectKey!));
    response.setHeader(storeLengthHeader, lengthOf(sizeBytes, range));
    response.writeHead(status, { 'Content-Length': 0 }).end();
    return;
  }
  const bytes = await readBytes(context, blob, range);
  response.writeHead(status);
  await flow(bytes, response);
  // Only the trace shows this error: the client is gone.
  if (!response.writableFinished) throw bytes.errored ?? new Error('the client closed the connection');
}

/** Opens the object of a blob, or the one that it shares since the look-up. */
async function readBytes(context: BlobsContext, blob: Blob, range: ByteRange | undefined): Promise<Readable> {
  const bytes = await context.store.read(blob.objectKey!, range);
  if (bytes) return bytes;
  const again = await findBlob(context.pool, blob.rowId);
  if (!again) throw blobNotFound();
  const others = again.objectKey === blob.objectKey ? undefined : await context.store.read(again.objectKey!, range);
  if (!others) throw new Error(`the object of blob ${blob.blobId} is gone`);
  return others;
}

/** The presigned URL of the blob, if the store offers them. */
async function presignedUrl(store: ObjectStore, blob: Blob): Promise<string | undefined> {
  return store.presign?.(blob.objectKey!, {
    contentType: blob.contentType,
    contentDisposition: contentDisposition(blob.contentType, blob.filename),
    cacheControl,
  });
}

function lengthOf(sizeBytes: number, range: ByteRange | undefined): number {
  return range ? range.end - range.start + 1 : sizeBytes;
}

function describe(response: ServerResponse, blob: Blob, sizeBytes: number, range: ByteRange | undefined): void {
  const headers = {
    'Content-Type': blob.contentType,
    'Content-Length': lengthOf(sizeBytes, range),
    ...(range && { 'Content-Range': `bytes ${range.start}-${range.end}/${sizeBytes}` }),
    'Accept-Ranges': 'bytes',
    'Content-Disposition': contentDisposition(blob.contentType, blob.filename),
    'X-Content-Type-Options': 'nosniff',
    'Content-Security-Policy': "sandbox; default-src 'none'",
    'Cross-Origin-Resource-Policy': 'cross-origin',
  };
  for (const [name, value] of Object.entries(headers)) response.setHeader(name, value);
}
