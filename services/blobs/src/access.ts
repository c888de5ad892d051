import type { BlobsDefinition } from '@granary/shared/gen/granary/blobs/v1/Blobs';
import type { AccessTo } from '@granary/shared/rpc/access';

/** The methods of blobs that each service may call from another process. */
export const blobsAccess = { gateway: '*' } satisfies AccessTo<BlobsDefinition>;
