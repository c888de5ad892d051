import { ServiceError } from '@granary/shared/errors';
import type { BlobsDefinition } from '@granary/shared/gen/granary/blobs/v1/Blobs';
import type { DeleteBlobRequest } from '@granary/shared/gen/granary/blobs/v1/DeleteBlobRequest';
import type { DeleteBlobResponse } from '@granary/shared/gen/granary/blobs/v1/DeleteBlobResponse';
import type { StoreRequest } from '@granary/shared/gen/granary/data/v1/StoreRequest';
import { loadService } from '@granary/shared/rpc/protos';
import type { Implementation } from '@granary/shared/rpc/implementation';
import type { Call } from '@granary/shared/rpc/types';
import { blobsAccess } from './access';
import { blobNotFound, recordDeletion, markDeleted, withdrawDeletion, type Blob } from './records/blobs';
import { isOutcomeUnknown, type BlobsContext } from './records/context';
import { findVisible } from './transfers/download';

export const blobsDefinition = loadService<BlobsDefinition>('blobs', 'Blobs');

export function blobsImplementation(context: BlobsContext): Implementation<BlobsDefinition> {
  return {
    definition: blobsDefinition,
    access: blobsAccess,
    handlers: {
      deleteBlob: (request, call) => deleteBlob(context, request, call),
    },
  };
}

/**
 * Deletes the metadata document by a commit of its own, then the blob. The commit keeps the answer for the
 * Idempotency-Key, so that a repeated deletion finds it after the blob is gone.
 */
async function deleteBlob(context: BlobsContext, request: DeleteBlobRequest, call: Call): Promise<DeleteBlobResponse> {
  const { ticketId } = request;
  const hasKey = (request.idempotency?.key ?? '') !== '';
  let blob: Blob;
  try {
    blob = await findVisible(context, request);
  } catch (error) {
    if (!hasKey || !isBlobNotFound(error)) throw error;
    return findEarlierDeletion(context, request, call);
  }
  await recordDeletion(context.pool, blob.rowId, ticketId);
  const { resultsJson, ticketId: storedTicketId } = await context.data
    .store(deletion(request), call)
    .catch(async (error: unknown) => {
      if (!isOutcomeUnknown(error)) await withdrawDeletion(context.pool, blob.rowId, ticketId);
      throw error;
    });
  const [result] = JSON.parse(resultsJson.toString()) as Array<{ celestia_height: number }>;
  if (!result) throw new ServiceError('INTERNAL', 'INTERNAL', 'data answered without a result');
  const deleted = await markDeleted(context.pool, blob, BigInt(result.celestia_height));
  // The answer was kept for the Idempotency-Key, and the blob was stored after the deletion that it is about.
  if (!deleted.includes(blob.rowId)) await withdrawDeletion(context.pool, blob.rowId, ticketId);
  context.appended.notify();
  // The next round removes what is left, so that a full or slow disk does not fail the deletion.
  await context.removeBytes().catch((error: unknown) => context.log.warn({ err: error }, 'bytes were not removed yet'));
  return { height: String(result.celestia_height), ticketId: storedTicketId };
}

const isBlobNotFound = (error: unknown): boolean => error instanceof ServiceError && error.reason === 'BLOB_NOT_FOUND';

const refusals = new Set(['DOCUMENT_NOT_FOUND', 'COLLECTION_NOT_FOUND', 'PRECONDITION_FAILED']);

/**
 * The deletion that was answered to the same Idempotency-Key: by a change of no version, which is refused unless its
 * answer is kept. Throws BLOB_NOT_FOUND.
 */
async function findEarlierDeletion(
  { data }: BlobsContext,
  request: DeleteBlobRequest,
  call: Call,
): Promise<DeleteBlobResponse> {
  const { appId, appNumber, collection, blobId, ticketId, idempotency } = request;
  const noVersion = { any: false, numbers: [] };
  const change = {
    collection,
    id: blobId,
    change: 'delete',
    body: Buffer.alloc(0),
    ifMatch: noVersion,
    ifNoneMatch: null,
  };
  try {
    const earlierDeletion = await data.changeDocument(
      { appId, appNumber, ticketId, ...change, idempotency, isPaid: true },
      call,
    );
    return { height: earlierDeletion.height, ticketId: earlierDeletion.ticketId };
  } catch (error) {
    throw error instanceof ServiceError && refusals.has(error.reason) ? blobNotFound() : error;
  }
}

function deletion(request: DeleteBlobRequest): StoreRequest {
  const { appId, appNumber, collection, blobId, ticketId, idempotency } = request;
  const body = { root: `${appId}::${collection}`, data: [{ id: blobId, deleted: true }] };
  return {
    appId,
    appNumber,
    ticketId,
    body: Buffer.from(JSON.stringify(body)),
    idempotency,
    // Deleting costs nothing.
    isPaid: true,
  };
}
