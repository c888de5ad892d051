import { z } from 'zod';
import { grpcAddress, whole } from '@granary/shared/config';
import { commonConfig } from '@granary/shared/service/common-config';

const isOrigin = (text: string) => URL.canParse(text) && new URL(text).origin === text.replace(/\/$/, '');
const origin = z.url({ protocol: /^https?$/ }).refine(isOrigin, 'scheme, host and port alone are expected');

/** The environment of the blobs service. DATA_ADDRESS may be absent only when data is in the same process. */
export const blobsConfig = commonConfig
  .extend({
    /** host:port of the internal HTTP listener, over which the gateway moves bytes. */
    HTTP_LISTEN: commonConfig.shape.LISTEN,
    /** Where the bytes are: `files` in a directory of one running service, `s3` in a bucket that copies share. */
    OBJECT_STORE: z.enum(['files', 's3']).default('files'),
    OBJECTS_DIR: z.string().min(1).optional(),
    S3_ENDPOINT: origin.optional(),
    S3_REGION: z.string().min(1).default('us-east-1'),
    S3_BUCKET: z
      .string()
      .regex(/^[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]$/, 'the name of a bucket is expected')
      .optional(),
    /** What all keys in the bucket begin with. */
    S3_PREFIX: z
      .string()
      .regex(/^([A-Za-z0-9._-]+\/)*$/, 'names that each end in a slash are expected')
      .default(''),
    /** Either the key or the name of a file that holds it. */
    S3_ACCESS_KEY: z.string().min(1).optional(),
    S3_ACCESS_KEY_FILE: z.string().min(1).optional(),
    S3_SECRET_KEY: z.string().min(1).optional(),
    S3_SECRET_KEY_FILE: z.string().min(1).optional(),
    /** Whether a download is answered with the address of the object in the store, where clients reach it. */
    BLOBS_PRESIGNED: z.stringbool().default(false),
    S3_PUBLIC_ENDPOINT: origin.optional(),
    MAX_BLOB_BYTES: whole(1, 1024 ** 4).default(1024 ** 3),
    /** Uploads under way at once, and as many downloads; of one app three quarters of that. */
    TRANSFERS_MAX: whole(1, 100_000).default(512),
    /** A transfer on which nothing moves for this long is cut. */
    IDLE_TIMEOUT_MS: whole(1_000, 3_600_000).default(60_000),
    /** Age from which an upload that data does not know is given up; longer than any commit can take. */
    PENDING_GRACE_MS: whole(0, 86_400_000).default(300_000),
    /** Age from which what the store holds without anybody knowing of it is removed; longer than any upload can take. */
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
    for (const name of ['S3_ACCESS_KEY', 'S3_SECRET_KEY'] as const) {
      const given = [config[name], config[`${name}_FILE`]].filter((value) => value !== undefined);
      if (given.length !== 1) need(name, `either it or ${name}_FILE is needed when OBJECT_STORE is s3`);
    }
    if (config.BLOBS_PRESIGNED && config.S3_PUBLIC_ENDPOINT === undefined) {
      need('S3_PUBLIC_ENDPOINT', 'is needed when BLOBS_PRESIGNED is true');
    }
  });

export type BlobsConfig = Readonly<z.infer<typeof blobsConfig>>;
