import { openFilesystemStore } from '../stores/filesystem';
import { openS3Store, type S3StoreOptions } from '../stores/s3/store';
import type { ObjectStore } from '../stores/store';
import { readSecret } from '@granary/shared/trust/setting-file';
import { webIdentityKeys } from '../stores/s3/web-identity';
import type { BlobsConfig } from '../config';

/**
 * Opens the configured store. `owner` identifies this installation, so that a bucket of another one is refused. Throws
 * a ConfigError when the store cannot be used.
 */
export async function openObjectStore(config: BlobsConfig, owner: string): Promise<ObjectStore> {
  if (config.OBJECT_STORE === 'files') return openFilesystemStore(config.OBJECTS_DIR!);
  return openS3Store({
    endpoint: config.S3_ENDPOINT!,
    region: config.S3_REGION,
    bucket: config.S3_BUCKET!,
    owner,
    prefix: config.S3_PREFIX,
    ...keysOf(config),
    uploadBytesMax: config.UPLOAD_BUFFER_BYTES,
    hasDirectReads: config.BLOBS_DIRECT_READS,
    ...(config.BLOBS_PRESIGNED && { publicEndpoint: config.S3_PUBLIC_ENDPOINT! }),
  });
}

/** Keys that are given, or the source of those for the token of a service account. */
function keysOf(config: BlobsConfig): Pick<S3StoreOptions, 'accessKey' | 'secretKey' | 'keys'> {
  const accessKey = readSecret(config, 'S3_ACCESS_KEY');
  if (accessKey !== undefined) return { accessKey, secretKey: readSecret(config, 'S3_SECRET_KEY')! };
  const keys = webIdentityKeys({
    tokenFile: config.AWS_WEB_IDENTITY_TOKEN_FILE!,
    roleArn: config.AWS_ROLE_ARN,
    endpoint: config.S3_STS_ENDPOINT ?? `https://sts.${config.S3_REGION}.amazonaws.com`,
  });
  return { keys };
}
