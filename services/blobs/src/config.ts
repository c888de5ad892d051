import { z } from 'zod';
import { optionalText, origin, serviceAddress, whole } from '@granary/shared/config';
import { blobSettings, commonConfig } from '@granary/shared/service/common-config';

/** The object store of `OBJECT_STORE=s3`, and the removal of objects that nothing refers to. */
export const objectStoreSettings = {
  S3_ENDPOINT: origin.optional().meta({
    description: '`http://host:port` or `https://host`; without TLS on a private network only.',
    defaultText: 'required',
  }),
  S3_BUCKET: z
    .string()
    .regex(/^[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]$/, 'the name of a bucket is expected')
    .optional()
    .meta({
      description: 'The bucket. It is created at the start if it is missing and the keys permit it.',
      defaultText: 'required',
    }),
  S3_REGION: z.string().min(1).default('us-east-1').describe('The region of the bucket.'),
  S3_PREFIX: z
    .string()
    .regex(/^([A-Za-z0-9._-]+\/)*$/, 'names that each end in a slash are expected')
    .default('')
    .describe('Prefix of all keys, ending in a slash, for a bucket that has other contents too.'),
  S3_ACCESS_KEY: optionalText.meta({ description: 'The id of the access key.', defaultText: 'required' }),
  S3_ACCESS_KEY_FILE: optionalText.describe(
    'A file that holds the id, in place of `S3_ACCESS_KEY`, for mounted secrets.',
  ),
  S3_SECRET_KEY: optionalText.meta({ description: 'The secret of the access key.', defaultText: 'required' }),
  S3_SECRET_KEY_FILE: optionalText.describe('A file that holds the secret, in place of `S3_SECRET_KEY`.'),
  AWS_WEB_IDENTITY_TOKEN_FILE: optionalText.describe(
    'In place of keys: the token file of a service account, see below. EKS sets this name and the next.',
  ),
  AWS_ROLE_ARN: optionalText.describe('The role that the token stands for, where the store needs one.'),
  S3_STS_ENDPOINT: origin.optional().meta({
    description: '`https://host` of the security token service.',
    defaultText: '`https://sts.<region>.amazonaws.com`',
  }),
  BLOBS_PRESIGNED: z
    .stringbool()
    .default(false)
    .describe('Whether downloads are redirected (307) to the store itself.'),
  BLOBS_DIRECT_READS: z
    .stringbool()
    .default(true)
    .describe('Whether the gateway reads the bytes of downloads from the store itself, see below.'),
  S3_PUBLIC_ENDPOINT: origin
    .optional()
    .describe('The address at which clients reach the store; required by `BLOBS_PRESIGNED`.'),
  SWEEP_AGE_MS: whole(60_000, 30 * 86_400_000)
    .default(86_400_000)
    .describe('Age at which objects that nothing refers to are removed; longer than any upload may take.'),
  SWEEP_EVERY_MS: whole(1_000, 86_400_000)
    .default(6 * 3_600_000)
    .describe('How often one replica looks for such objects.'),
};

/** The environment of the blobs service. DATA_ADDRESS may be absent only when data is in the same process. */
export const blobsConfig = commonConfig
  .extend({
    HTTP_LISTEN: commonConfig.shape.LISTEN.describe(
      'host:port of the internal HTTP listener, for transfers of the gateway.',
    ),
    OBJECT_STORE: z
      .enum(['files', 's3'])
      .default('files')
      .describe(
        '`files`: in a directory, for a single replica. `s3`: in a bucket, see [Objects in S3](#objects-in-s3).',
      ),
    OBJECTS_DIR: optionalText.meta({
      description: 'The directory of the contents, which one running process uses alone.',
      defaultText: 'for `files`',
    }),
    ...blobSettings,
    TRANSFERS_MAX: whole(1, 100_000)
      .default(512)
      .describe(
        'Concurrent uploads, and as many downloads that pass through `blobs`. One app gets at most 75 % of them.',
      ),
    UPLOAD_BUFFER_BYTES: whole(16 * 1024 ** 2, 64 * 1024 ** 3)
      .default(256 * 1024 ** 2)
      .describe(
        'Parts of uploads to S3 in memory, at most two of 8 MiB or more for each upload. When it is full, uploads wait for 10 s and then get 503.',
      ),
    IDLE_TIMEOUT_MS: whole(1_000, 3_600_000)
      .default(60_000)
      .describe('A transfer without progress for this long is cut off.'),
    PENDING_GRACE_MS: whole(0, 86_400_000)
      .default(300_000)
      .describe('Age at which an upload without a commit is given up; longer than any commit can take.'),
    DATA_ADDRESS: serviceAddress('data'),
    ...objectStoreSettings,
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
      for (const [index, name] of names.entries()) {
        if (keys[index]!.length !== 1) {
          need(name, `either it, ${name}_FILE or AWS_WEB_IDENTITY_TOKEN_FILE is needed when OBJECT_STORE is s3`);
        }
      }
    }
    if (config.BLOBS_PRESIGNED && config.S3_PUBLIC_ENDPOINT === undefined) {
      need('S3_PUBLIC_ENDPOINT', 'is needed when BLOBS_PRESIGNED is true');
    }
  });

export type BlobsConfig = Readonly<z.infer<typeof blobsConfig>>;
