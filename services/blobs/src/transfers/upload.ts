import type { IncomingMessage } from 'node:http';
import { ServiceError, unavailable } from '@granary/shared/errors';
import type { UploadGrant } from '@granary/shared/trust/blob-grant';
import type { CommitUploadRequest } from '@granary/shared/gen/granary/data/v1/CommitUploadRequest';
import type { CommitUploadResponse } from '@granary/shared/gen/granary/data/v1/CommitUploadResponse';
import { forgetPending, insertPending, storedUpload } from '../records/blobs';
import { storedFilename, storedType } from './content';
import { dataTimeoutMs, isOutcomeUnknown, type BlobsContext } from '../records/context';
import { formOverheadBytes, metadataMaxBytes, receiveForm, receiveRaw, tooLarge, type ReceivedUpload } from './form';
import { canonicalMetadata, contentHash } from './metadata';
import { callWithin } from './tracing';

/** The answer of endpoint 5. */
export interface UploadAnswer {
  ticket_id: string;
  blob_id: string;
  status: 'Completed';
  message: string;
  /** Where the upload made the collection. */
  created_collection?: { name: string; access_policy: { read: string } };
}

/**
 * Takes in a blob and makes it visible: bytes durable, a pending row that knows them, the commit in data, the row
 * stored. Whatever ends it before the commit leaves nothing; what a crash leaves in between is settled later.
 */
export async function upload(
  context: BlobsContext,
  request: IncomingMessage,
  grant: UploadGrant,
  requestId: string,
): Promise<UploadAnswer> {
  const isForm = /^multipart\/form-data\b/i.test(request.headers['content-type'] ?? '');
  refuseEarly(request, grant.maxBytes, isForm);
  context.objectStorage.refuseWhenFull();
  const received = await (isForm ? receiveForm : receiveRaw)(request, context.store, grant.maxBytes);
  const { object } = received;
  context.committing.add(grant.blobId);
  try {
    const message = await prepare(context, received, grant, requestId).catch(async (error: unknown) => {
      await object.discard();
      throw error;
    });
    const committed = await commit(context, message, requestId);
    const { createdCollection: created } = committed;
    return {
      ticket_id: committed.ticketId,
      blob_id: committed.blobId,
      status: 'Completed',
      message: 'The blob is stored',
      ...(created && { created_collection: { name: created.name, access_policy: { read: created.readAccess } } }),
    };
  } finally {
    context.committing.delete(grant.blobId);
  }
}

/** What can be refused before a byte of the body is read. */
function refuseEarly(request: IncomingMessage, maxBytes: number, isForm: boolean): void {
  const encoding = request.headers['content-encoding'] ?? 'identity';
  if (encoding.toLowerCase() !== 'identity') {
    const message = 'An upload cannot have a Content-Encoding';
    throw new ServiceError('INVALID_ARGUMENT', 'UNSUPPORTED_MEDIA_TYPE', message, {
      details: { expected: ['identity'] },
    });
  }
  const declaredBytes = Number(request.headers['content-length'] ?? 0);
  const overheadBytes = isForm ? metadataMaxBytes + formOverheadBytes : 0;
  if (declaredBytes > maxBytes + overheadBytes) throw tooLarge('A blob', maxBytes, 'blob');
}

/** Checks what came with the bytes, and writes down whose they are. */
async function prepare(
  context: BlobsContext,
  received: ReceivedUpload,
  grant: UploadGrant,
  requestId: string,
): Promise<CommitUploadRequest> {
  const { object, metadata } = received;
  const canonical = canonicalMetadata(metadata);
  const { appId, appNumber, collection, blobId } = grant;
  const contentType = storedType(received.contentType);
  const filename = storedFilename(received.filename);
  const startedMs = context.clock.now().getTime();
  const objectKey = await insertPending(context.pool, {
    ...{ blobId, appId, appNumber, collection, contentType, filename },
    ...{ objectKey: object.key, sizeBytes: object.sizeBytes, sha256: object.sha256, ticket: grant.ticketId },
  });
  try {
    if (objectKey === object.key) await object.keep();
    else await object.discard();
    refuseLate(context, startedMs);
  } catch (error) {
    // Data was never asked about this row, so there is nothing to settle.
    await dropped(context, blobId, requestId, () => forgetPending(context.pool, blobId));
    throw error;
  }
  return {
    ...{ appId, appNumber, collection, blobId, contentType, metadata },
    ticketId: grant.ticketId,
    sizeBytes: String(object.sizeBytes),
    sha256: object.sha256,
    uploadedAt: context.clock.now().toISOString(),
    idempotency: {
      caller: grant.caller,
      method: grant.method,
      path: grant.path,
      key: grant.idempotencyKey ?? '',
      contentHash: contentHash(object.sha256, contentType, filename, canonical),
    },
  };
}

/**
 * A pending blob is given up at a certain age. Nothing may be committed any more by then, so an upload that stood still
 * for too long (a process that was paused, a store that was away) is refused while there is time for a commit.
 */
function refuseLate(context: BlobsContext, startedMs: number): void {
  const latestMs = startedMs + Math.max(context.pendingGraceMs - 2 * dataTimeoutMs, dataTimeoutMs);
  if (context.clock.now().getTime() > latestMs) throw unavailable('Storing the blob took too long');
}

/** Drops an upload that was refused. Should that fail, its row is still there and is settled later. */
async function dropped(
  context: BlobsContext,
  blobId: string,
  requestId: string,
  drop: () => Promise<void>,
): Promise<void> {
  await drop().catch((error: unknown) => {
    context.log.warn({ err: error, requestId, blobId }, 'an upload that was refused is not removed yet');
  });
}

async function commit(
  context: BlobsContext,
  message: CommitUploadRequest,
  requestId: string,
): Promise<CommitUploadResponse> {
  const { blobId } = message;
  const drop = () =>
    dropped(context, blobId, requestId, async () => {
      await forgetPending(context.pool, blobId);
      await context.removeBytes();
    });
  let committed: CommitUploadResponse;
  try {
    committed = await context.data.commitUpload(message, callWithin(context, requestId, dataTimeoutMs));
  } catch (error) {
    if (!isOutcomeUnknown(error)) await drop();
    throw error;
  }
  if (committed.blobId !== blobId) {
    // The idempotency key was used before: what came now was the same, and the blob of then is the answer.
    await drop();
    return committed;
  }
  const stored = storedUpload(blobId, committed);
  await context.markStored(message.appId, message.collection, stored).catch((error: unknown) => {
    // It is visible, for data has committed it; the row follows when it is read or settled.
    context.log.warn({ err: error, requestId, blobId }, 'a committed blob was not marked as stored');
  });
  context.appended.notify();
  return committed;
}
