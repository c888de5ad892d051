import { ServiceError } from '@granary/shared/errors';
import type { BlobsDefinition } from '@granary/shared/gen/granary/blobs/v1/Blobs';
import type { DeleteBlobRequest } from '@granary/shared/gen/granary/blobs/v1/DeleteBlobRequest';
import type { StoreRequest } from '@granary/shared/gen/granary/data/v1/StoreRequest';
import { loadService } from '@granary/shared/rpc/protos';
import type { Implementation } from '@granary/shared/rpc/implementation';
import type { Call } from '@granary/shared/rpc/types';
import type { AccessTo } from '@granary/shared/rpc/access';
import { recordDeletion, markDeleted, withdrawDeletion } from './records/blobs';
import { isOutcomeUnknown, type BlobsContext } from './records/context';
import { findVisible } from './transfers/download';

export const blobsDefinition = loadService<BlobsDefinition>('blobs', 'Blobs');

export function blobsImplementation(context: BlobsContext): Implementation<BlobsDefinition> {
  return {
    definition: blobsDefinition,
    access: { gateway: '*' } satisfies AccessTo<BlobsDefinition>,
    handlers: {
      deleteBlob: async (request, call) => ({ height: await deleteBlob(context, request, call) }),
    },
  };
}

/** Deletes the metadata document by a commit of its own, then the blob. Answers the height of the commit. */
async function deleteBlob(context: BlobsContext, request: DeleteBlobRequest, call: Call): Promise<string> {
  const { appId, collection, blobId, ticketId } = request;
  await findVisible(context, appId, collection, blobId);
  await recordDeletion(context.pool, blobId, ticketId);
  const { resultsJson } = await context.data.store(deletion(request), call).catch(async (error: unknown) => {
    if (!isOutcomeUnknown(error)) await withdrawDeletion(context.pool, blobId, ticketId);
    throw error;
  });
  await markDeleted(context.pool, blobId);
  context.appended.notify();
  // The next round removes what is left, so that a full or slow disk does not fail the deletion.
  await context.removeBytes().catch((error: unknown) => context.log.warn({ err: error }, 'bytes were not removed yet'));
  const [result] = JSON.parse(resultsJson.toString()) as Array<{ celestia_height: number }>;
  if (!result) throw new ServiceError('INTERNAL', 'INTERNAL', 'data answered without a result');
  return String(result.celestia_height);
}

function deletion(request: DeleteBlobRequest): StoreRequest {
  const { appId, appNumber, collection, blobId, ticketId, caller } = request;
  const body = { root: `${appId}::${collection}`, data: [{ id: blobId, deleted: true }] };
  return {
    appId,
    appNumber,
    ticketId,
    body: Buffer.from(JSON.stringify(body)),
    idempotency: { caller, method: '', path: '', key: '', contentHash: Buffer.alloc(0) },
  };
}
