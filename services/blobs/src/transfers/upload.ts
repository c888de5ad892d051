import type { IncomingMessage } from 'node:http';
import { newDocumentId } from '@granary/shared/ids';
import { ServiceError, unavailable } from '@granary/shared/errors';
import type { UploadPermit } from '@granary/shared/trust/transfer-permit';
import type { CommitUploadRequest } from '@granary/shared/gen/granary/data/v1/CommitUploadRequest';
import type { CommitUploadResponse } from '@granary/shared/gen/granary/data/v1/CommitUploadResponse';
import { discardPending, insertPending, storedUpload, type Blob } from '../records/blobs';
import { storedFilename, storedType } from './content';
import { findIfVisible } from './download';
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
  /** The collection that the upload made, if it made one. */
  created_collection?: { name: string; access_policy: { read: string } };
}

/**
 * Stores a blob and makes it visible: bytes durable, a pending row, the commit in `data`, the row marked as stored. A
 * failure before the commit leaves nothing; what a crash leaves in between is reconciled later.
 */
export async function upload(
  context: BlobsContext,
  request: IncomingMessage,
  permit: UploadPermit,
  requestId: string,
): Promise<UploadAnswer> {
  const isForm = /^multipart\/form-data\b/i.test(request.headers['content-type'] ?? '');
  refuseEarly(request, permit.maxBytes, isForm);
  context.objectStorage.refuseWhenFull();
  const received = await (isForm ? receiveForm : receiveRaw)(request, context.store, permit.maxBytes);
  const { object } = received;
  // Another application, and an upload at the same time, may have chosen the same id.
  const rowId = permit.isIdChosen === true ? newDocumentId() : permit.blobId;
  context.committing.add(rowId);
  try {
    const message = await prepare(context, rowId, received, permit, requestId).catch(async (error: unknown) => {
      await object.discard();
      throw error;
    });
    const committed = await commit(context, { rowId, permit, message }, requestId);
    const { createdCollection: created } = committed;
    return {
      ticket_id: committed.ticketId,
      blob_id: committed.blobId,
      status: 'Completed',
      message: 'The blob is stored',
      ...(created && { created_collection: { name: created.name, access_policy: { read: created.readAccess } } }),
    };
  } finally {
    context.committing.delete(rowId);
  }
}

/** Refuses what can be refused before the body is read. */
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

/** Checks the metadata, inserts the pending row and makes the bytes durable. */
async function prepare(
  context: BlobsContext,
  rowId: string,
  received: ReceivedUpload,
  permit: UploadPermit,
  requestId: string,
): Promise<CommitUploadRequest> {
  const { object, metadata } = received;
  const canonical = canonicalMetadata(metadata);
  const { appId, appNumber, collection, blobId } = permit;
  const contentType = storedType(received.contentType);
  const filename = storedFilename(received.filename);
  const startedMs = context.clock.now().getTime();
  const objectKey = await insertPending(context.pool, {
    rowId,
    blobId,
    appId,
    appNumber,
    collection,
    contentType,
    filename,
    objectKey: object.key,
    sizeBytes: object.sizeBytes,
    sha256: object.sha256,
    ticket: permit.ticketId,
  });
  let taken: Blob | undefined;
  try {
    if (objectKey === object.key) await object.keep();
    else await object.discard();
    // Another upload under this id may have been stored while the bytes of this one arrived.
    if (permit.isIdChosen === true) taken = await findIfVisible(context, permit, rowId);
    refuseLate(context, startedMs);
  } catch (error) {
    // The commit was never sent, so the outcome is known.
    await dropped(context, rowId, requestId, () => discardPending(context.pool, rowId));
    throw error;
  }
  return {
    appId,
    appNumber,
    collection,
    blobId,
    contentType,
    metadata,
    ticketId: permit.ticketId,
    sizeBytes: String(object.sizeBytes),
    sha256: object.sha256,
    uploadedAt: context.clock.now().toISOString(),
    isPaid: permit.isPaid,
    isHeld: permit.isHeld,
    ...(taken && { takenInCollection: numberOfCollection(taken) }),
    idempotency: {
      caller: permit.caller,
      method: permit.method,
      path: permit.path,
      key: permit.idempotencyKey ?? '',
      contentHash: contentHash(object.sha256, contentType, filename, canonical),
    },
  };
}

/** A copy of `data` that does not know ids of clients. */
const isOlderRelease = (error: unknown): boolean => error instanceof ServiceError && error.code === 'UNIMPLEMENTED';

/** The number that `data` compares: 0 is that of a collection of which it is not known. */
const numberOfCollection = ({ collectionNumber }: Blob): string => (collectionNumber ?? 0n).toString();

/**
 * Reconciliation discards a pending blob at a certain age, and nothing may be committed by then. So an upload that
 * stalled (a paused process, an unreachable store) is refused while there is still time for a commit.
 */
function refuseLate(context: BlobsContext, startedMs: number): void {
  const latestMs = startedMs + Math.max(context.pendingGraceMs - 2 * dataTimeoutMs, dataTimeoutMs);
  if (context.clock.now().getTime() > latestMs) throw unavailable('Storing the blob took too long');
}

/** Drops a refused upload. If that fails, its row remains and is reconciled later. */
async function dropped(
  context: BlobsContext,
  rowId: string,
  requestId: string,
  drop: () => Promise<void>,
): Promise<void> {
  await drop().catch((error: unknown) => {
    context.log.warn({ err: error, requestId, blobId: rowId }, 'an upload that was refused is not removed yet');
  });
}

async function commit(
  context: BlobsContext,
  { rowId, permit, message }: { rowId: string; permit: UploadPermit; message: CommitUploadRequest },
  requestId: string,
): Promise<CommitUploadResponse> {
  const { data } = context;
  const drop = () =>
    dropped(context, rowId, requestId, async () => {
      await discardPending(context.pool, rowId);
      await context.removeBytes();
    });
  let committed: CommitUploadResponse;
  try {
    const call = callWithin(context, requestId, dataTimeoutMs);
    committed = await (permit.isIdChosen === true
      ? data.commitUploadUnderId(message, call)
      : data.commitUpload(message, call));
  } catch (error) {
    if (!isOutcomeUnknown(error)) await drop();
    throw isOlderRelease(error) ? unavailable('A copy of data is of an older release; retry after the upgrade') : error;
  }
  if (committed.ticketId !== message.ticketId || committed.blobId !== message.blobId) {
    // A repeat of an earlier upload with the same idempotency key: the answer is the earlier blob.
    await drop();
    return committed;
  }
  const stored = storedUpload(rowId, committed);
  await context.markStored(message.appId, message.collection, stored).catch((error: unknown) => {
    // It is visible, because `data` has committed it; the row is updated when it is read or reconciled.
    context.log.warn({ err: error, requestId, blobId: rowId }, 'a committed blob was not marked as stored');
  });
  context.appended.notify();
  return committed;
}
