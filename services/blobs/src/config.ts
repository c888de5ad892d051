import { z } from 'zod';
import { commonConfig, whole } from '@granary/shared/config';

/** The environment of the blobs service. DATA_ADDRESS may be absent only when data is in the same process. */
export const blobsConfig = commonConfig.extend({
  /** host:port of the internal HTTP listener, over which the gateway moves bytes. */
  HTTP_LISTEN: commonConfig.shape.LISTEN,
  /** Shared with the gateway, whose grants it signs. */
  INTERNAL_SECRET: z.string().min(32, 'at least 32 characters are needed'),
  /** The directory of the file-system store. It belongs to one running service. */
  OBJECTS_DIR: z.string().min(1),
  MAX_BLOB_BYTES: whole(1, 1024 ** 4).default(1024 ** 3),
  /** Uploads and downloads under way at once. */
  TRANSFERS_MAX: whole(1, 100_000).default(512),
  /** A transfer on which nothing moves for this long is cut. */
  IDLE_TIMEOUT_MS: whole(1_000, 3_600_000).default(60_000),
  /** Age from which an upload that data does not know is given up; longer than any commit can take. */
  PENDING_GRACE_MS: whole(0, 86_400_000).default(300_000),
  DATA_ADDRESS: z.string().optional(),
});

export type BlobsConfig = Readonly<z.infer<typeof blobsConfig>>;
