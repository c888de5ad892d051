import { openFilesystemStore } from '@granary/shared/objects/filesystem';
import { openS3Store } from '@granary/shared/objects/s3/store';
import type { ObjectStore } from '@granary/shared/objects/store';
import { readSecret } from '@granary/shared/trust/setting-file';
import type { BlobsConfig } from '../config';

/**
 * Opens the configured store. `owner` identifies this installation, so that a bucket of another one is refused. Throws a
 * ConfigError when the store cannot be used.
 */
export async function openObjectStore(config: BlobsConfig, owner: string): Promise<ObjectStore> {
  if (config.OBJECT_STORE === 'files') return openFilesystemStore(config.OBJECTS_DIR!);
  return openS3Store({
    endpoint: config.S3_ENDPOINT!,
    region: config.S3_REGION,
    bucket: config.S3_BUCKET!,
    owner,
    prefix: config.S3_PREFIX,
    accessKey: readSecret(config, 'S3_ACCESS_KEY')!,
    secretKey: readSecret(config, 'S3_SECRET_KEY')!,
    ...(config.BLOBS_PRESIGNED && { publicEndpoint: config.S3_PUBLIC_ENDPOINT! }),
  });
}
