import { readFile } from 'node:fs/promises';
import { ConfigError } from '@granary/shared/config';
import { openFilesystemStore } from '@granary/shared/objects/filesystem';
import { openS3Store } from '@granary/shared/objects/s3/store';
import type { ObjectStore } from '@granary/shared/objects/store';
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
    accessKey: await secretOf(config, 'S3_ACCESS_KEY'),
    secretKey: await secretOf(config, 'S3_SECRET_KEY'),
    ...(config.BLOBS_PRESIGNED && { publicEndpoint: config.S3_PUBLIC_ENDPOINT! }),
  });
}

/** A secret, from the variable or from the file that is mounted for it. */
async function secretOf(config: BlobsConfig, name: 'S3_ACCESS_KEY' | 'S3_SECRET_KEY'): Promise<string> {
  const given = config[name];
  if (given !== undefined) return given;
  const file = config[`${name}_FILE`]!;
  const secret = await readFile(file, 'utf8').then(
    (text) => text.trim(),
    () => {
      throw new ConfigError(`The configuration is wrong:\n  ${name}_FILE: ${file} cannot be read`);
    },
  );
  if (secret === '') throw new ConfigError(`The configuration is wrong:\n  ${name}_FILE: ${file} is empty`);
  return secret;
}
