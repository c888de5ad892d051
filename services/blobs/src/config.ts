import { z } from 'zod';
import { grpcAddress, origin, whole } from '@granary/shared/config';
import { commonConfig } from '@granary/shared/service/common-config';

/** The environment of the blobs service. DATA_ADDRESS may be absent only when data is in the same process. */
export const blobsConfig = commonConfig
  .extend({
    /** host:port of the internal HTTP listener, for transfers of the gateway. */
    HTTP_LISTEN: commonConfig.shape.LISTEN,
    /** `files`: in a directory, for a single replica; `s3`: in a bucket that replicas share. */
    OBJECT_STORE: z.enum(['files', 's3']).default('files'),
    OBJECTS_DIR: z.string().min(1).optional(),
    S3_ENDPOINT: origin.optional(),
    S3_REGION: z.string().min(1).default('us-east-1'),
    S3_BUCKET: z
      .string()
      .regex(/^[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]$/, 'the name of a bucket is expected')
      .optional(),
    /** Prefix of all keys in the bucket. */
    S3_PREFIX: z
      .string()
      .regex(/^([A-Za-z0-9._-]+\/)*$/, 'names that each end in a slash are expected')
      .default(''),
    /** Either the key or the file that contains it. */
    S3_ACCESS_KEY: z.string().min(1).optional(),
    S3_ACCESS_KEY_FILE: z.string().min(1).optional(),
    S3_SECRET_KEY: z.string().min(1).optional(),
    S3_SECRET_KEY_FILE: z.string().min(1).optional(),
    /**
     * A file with the token of a service account, which is exchanged for keys where none are given; EKS sets this
     * variable and AWS_ROLE_ARN.
     */
    AWS_WEB_IDENTITY_TOKEN_FILE: z.string().min(1).optional(),
    AWS_ROLE_ARN: z.string().min(1).optional(),
    /** The security token service; absent: that of AWS in the region. */
    S3_STS_ENDPOINT: origin.optional(),
    /** Whether downloads are redirected to the store. */
    BLOBS_PRESIGNED: z.stringbool().default(false),
    S3_PUBLIC_ENDPOINT: origin.optional(),
    MAX_BLOB_BYTES: whole(1, 1024 ** 4).default(1024 ** 3),
    /** Concurrent uploads, and as many downloads; three quarters of that for one app. */
    TRANSFERS_MAX: whole(1, 100_000).default(512),
    /** Parts of uploads to S3 in memory; beyond, uploads wait, and are refused after 10 s. */
    UPLOAD_BUFFER_BYTES: whole(16 * 1024 ** 2, 64 * 1024 ** 3).default(256 * 1024 ** 2),
    /** A transfer without progress for this long is aborted. */
    IDLE_TIMEOUT_MS: whole(1_000, 3_600_000).default(60_000),
    /** Age from which an uncommitted upload is discarded; longer than any commit can take. */
    PENDING_GRACE_MS: whole(0, 86_400_000).default(300_000),
    /** Age from which unreferenced objects are removed; longer than any upload can take. */
    SWEEP_AGE_MS: whole(60_000, 30 * 86_400_000).default(86_400_000),
    SWEEP_EVERY_MS: whole(1_000, 86_400_000).default(6 * 3_600_000),
    DATA_ADDRESS: grpcAddress.optional(),
  })
  .superRefine((config, context) => {
    const need = (name: keyof typeof config, why: string) => {
      context.addIssue({ code: 'custom', path: [name], message: why });
    };
    if (config.OBJECT_STORE === 'files') {
      if (config.OBJECTS_DIR === undefined) need('OBJECTS_DIR', 'is needed when OBJECT_STORE is files');
      if (config.BLOBS_PRESIGNED) need('BLOBS_PRESIGNED', 'needs OBJECT_STORE to be s3');
      return;
    }
    for (const name of ['S3_ENDPOINT', 'S3_BUCKET'] as const) {
      if (config[name] === undefined) need(name, 'is needed when OBJECT_STORE is s3');
    }
    const names = ['S3_ACCESS_KEY', 'S3_SECRET_KEY'] as const;
    const keys = names.map((name) => [config[name], config[`${name}_FILE`]].filter((value) => value !== undefined));
    const isWithoutKeys = keys.every((given) => given.length === 0);
    if (!isWithoutKeys || config.AWS_WEB_IDENTITY_TOKEN_FILE === undefined) {
      for (const [at, name] of names.entries()) {
        if (keys[at]!.length !== 1) {
          need(name, `either it, ${name}_FILE or AWS_WEB_IDENTITY_TOKEN_FILE is needed when OBJECT_STORE is s3`);
        }
      }
    }
    if (config.BLOBS_PRESIGNED && config.S3_PUBLIC_ENDPOINT === undefined) {
      need('S3_PUBLIC_ENDPOINT', 'is needed when BLOBS_PRESIGNED is true');
    }
  });

export type BlobsConfig = Readonly<z.infer<typeof blobsConfig>>;
