import { optionalText, origin, publicUrl, whole } from '@granary/shared/config';
import { commonConfig } from '@granary/shared/service/common-config';
import { z } from 'zod';

const vaultName = z.string().regex(/^[\w.-]{1,128}$/, 'letters, digits, _, . and - are expected');
const vaultPath = z
  .string()
  .regex(/^[\w.-]+(\/[\w.-]+)*$/, 'names with / between them are expected')
  .max(256);

const settings = commonConfig.extend({
  DATABASE_POOL_SIZE: whole(2, 100)
    .default(8)
    .describe('Connections to the database. The build of an index uses one for reading and others for its writes.'),
  FAST_POOL_SIZE: whole(1, 100).default(2).describe('Connections for look-ups of keys and collections.'),
  PIPELINED_POOL_SIZE: whole(1, 100)
    .default(2)
    .describe('Pipelined connections for short reads that one index answers; about as many as the database has cores.'),
  PRELOAD_CONCURRENCY: whole(1, 100)
    .default(1)
    .describe(
      'Bulks preloaded at a time while small writes arrive. Set it to the number of cores of the database less one.',
    ),
  WRITE_BUFFER_BYTES: whole(1024 ** 2, 64 * 1024 ** 3)
    .default(256 * 1024 ** 2)
    .describe('Writes in memory that are parsed or wait to be committed. When it is full, further writes get 503.'),
  SKILLS_DIRECTORY: z.string().min(1).describe('Where this replica keeps the skills documents, as files.'),
  PUBLIC_READ_TIMEOUT_MS: whole(10, 60_000)
    .default(2_000)
    .describe('Time of the statements of one read without a key, together, see [Public reads](#public-reads).'),
  PUBLIC_READ_ROWS_MAX: whole(1, 1_000_000_000)
    .default(1_000_000)
    .describe('Rows that a read without a key may pass where no index narrows them.'),
  MAINTENANCE_EVERY_MS: whole(50, 86_400_000)
    .default(60_000)
    .describe('How often one replica purges the documents that are past their retention.'),
  DEFAULT_READ: z
    .enum(['public', 'private'])
    .default('public')
    .describe(
      'Who may read collections and views that were created without an `access_policy`, by a write for example.',
    ),
  COUNTRY_NETWORKS_FILE: optionalText.describe(
    'CSV file for the operator `inCountry`, see [Networks by country](#networks-by-country). Without it the operator is refused.',
  ),
  ENCRYPTION_KEY_FILE: optionalText.describe(
    'File with the mnemonic of the root key of [encrypted fields](../encryption.md#the-root-key), protected as [that of the wallets](#the-seed-of-the-wallets). Without a root key no field can be encrypted.',
  ),
  ENCRYPTION_OLD_KEY_FILE: optionalText.describe(
    'File with the previous root key. At the start the new root key wraps what the previous one has wrapped.',
  ),
  ENCRYPTION_KEY_FILE_CREATE: z
    .stringbool()
    .default(false)
    .describe('Whether the first start makes `ENCRYPTION_KEY_FILE` where it is missing.'),
  ENCRYPTION_VAULT_KEY: vaultName
    .optional()
    .describe(
      'The root key is this key of a Transit secrets engine of [Vault](../encryption.md#in-vault), in place of `ENCRYPTION_KEY_FILE`.',
    ),
  ENCRYPTION_OLD_VAULT_KEY: vaultName
    .optional()
    .describe('The previous key of Vault, in place of `ENCRYPTION_OLD_KEY_FILE`.'),
  ENCRYPTION_VAULT_URL: origin
    .optional()
    .meta({ description: 'Scheme, host and port of Vault.', defaultText: 'with a key of Vault' }),
  ENCRYPTION_VAULT_MOUNT: vaultPath.default('transit').describe('Where the secrets engine is mounted.'),
  ENCRYPTION_VAULT_NAMESPACE: vaultPath.optional().describe('The namespace, in Vault Enterprise.'),
  ENCRYPTION_VAULT_TOKEN_FILE: optionalText.meta({
    description: 'File with the token. It is read again for each request.',
    defaultText: 'with a key of Vault',
  }),
  ENCRYPTION_VAULT_CA_FILE: optionalText.describe(
    'Certificates of the authorities to trust in place of those of the system. It is read again for each request.',
  ),
  ENCRYPTION_VAULT_TIMEOUT_MS: whole(100, 60_000)
    .default(3_000)
    .describe('Time limit of one request to Vault. A request that fails is repeated twice.'),
  PUBLIC_URL: publicUrl
    .default('http://127.0.0.1:8080')
    .describe('The address of the gateway in the examples of skills documents.'),
});

export const dataConfig = settings.superRefine((config, context) => {
  const refuse = (name: keyof typeof config, message: string) =>
    context.addIssue({ code: 'custom', path: [name], message });
  if (config.ENCRYPTION_VAULT_KEY !== undefined && config.ENCRYPTION_KEY_FILE !== undefined) {
    refuse('ENCRYPTION_VAULT_KEY', 'ENCRYPTION_KEY_FILE is set too, and the root key is in one of them');
  }
  if (config.ENCRYPTION_OLD_VAULT_KEY !== undefined && config.ENCRYPTION_OLD_KEY_FILE !== undefined) {
    refuse('ENCRYPTION_OLD_VAULT_KEY', 'ENCRYPTION_OLD_KEY_FILE is set too, and the old root key is in one of them');
  }
  if ((config.ENCRYPTION_VAULT_KEY ?? config.ENCRYPTION_OLD_VAULT_KEY) === undefined) return;
  for (const name of ['ENCRYPTION_VAULT_URL', 'ENCRYPTION_VAULT_TOKEN_FILE'] as const) {
    if (config[name] === undefined) refuse(name, 'is needed for a key of Vault');
  }
});

export type DataConfig = z.infer<typeof dataConfig>;
