import { origin, publicUrl, whole } from '@granary/shared/config';
import { commonConfig } from '@granary/shared/service/common-config';
import { z } from 'zod';

const vaultName = z.string().regex(/^[\w.-]{1,128}$/, 'letters, digits, _, . and - are expected');
const vaultPath = z
  .string()
  .regex(/^[\w.-]+(\/[\w.-]+)*$/, 'names with / between them are expected')
  .max(256);

const settings = commonConfig.extend({
  /** The build of an index uses one connection for reading and others for its writes. */
  DATABASE_POOL_SIZE: whole(2, 100).default(8),
  /** Connections for look-ups of keys and of the catalog. */
  FAST_POOL_SIZE: whole(1, 100).default(2),
  /**
   * Connections for short reads that one index answers, each for many at once; about as many as the database has cores.
   */
  PIPELINED_POOL_SIZE: whole(1, 100).default(2),
  /** Bulks that are preloaded at a time while small writes arrive; the cores of the database less one. */
  PRELOAD_CONCURRENCY: whole(1, 100).default(1),
  /** Bytes of writes that are parsed or wait for their batch; once they are used up, further writes are refused. */
  WRITE_BUFFER_BYTES: whole(1024 ** 2, 64 * 1024 ** 3).default(256 * 1024 ** 2),
  /** The directory in which this copy keeps the skills documents as files. */
  SKILLS_DIRECTORY: z.string().min(1),
  /** Time of the statements of one read without a key, together, beside pages that an index gives alone. */
  PUBLIC_READ_TIMEOUT_MS: whole(10, 60_000).default(2_000),
  /** Rows that a read without a key may pass where no index narrows them. */
  PUBLIC_READ_ROWS_MAX: whole(1, 1_000_000_000).default(1_000_000),
  /** How often documents past their retention are purged. */
  MAINTENANCE_EVERY_MS: whole(50, 86_400_000).default(60_000),
  /** The read access of collections and views created without an access policy, for example by a write. */
  DEFAULT_READ: z.enum(['public', 'private']).default('public'),
  /**
   * CSV of networks and countries, for inCountry: read at the start and after each change. Without it inCountry is
   * refused.
   */
  COUNTRY_NETWORKS_FILE: z.string().min(1).optional(),
  /**
   * A BIP-39 mnemonic, from which the key is derived that wraps the keys of encrypted fields. Without it no field can
   * be encrypted.
   */
  ENCRYPTION_KEY_FILE: z.string().min(1).optional(),
  /**
   * The file of the root key before: what that has wrapped is wrapped by the new one at the start. Likewise a key of
   * Vault.
   */
  ENCRYPTION_OLD_KEY_FILE: z.string().min(1).optional(),
  /** Makes the file at the first start where it is missing. */
  ENCRYPTION_KEY_FILE_CREATE: z.stringbool().default(false),
  /** The root key is this key of a Transit secrets engine of HashiCorp Vault, instead of a file. */
  ENCRYPTION_VAULT_KEY: vaultName.optional(),
  ENCRYPTION_OLD_VAULT_KEY: vaultName.optional(),
  ENCRYPTION_VAULT_URL: origin.optional(),
  ENCRYPTION_VAULT_MOUNT: vaultPath.default('transit'),
  ENCRYPTION_VAULT_NAMESPACE: vaultPath.optional(),
  /** Read again for each request. */
  ENCRYPTION_VAULT_TOKEN_FILE: z.string().min(1).optional(),
  /** Authorities to trust instead of those of the system. */
  ENCRYPTION_VAULT_CA_FILE: z.string().min(1).optional(),
  /** The time limit of one request to Vault; a request that fails is repeated twice. */
  ENCRYPTION_VAULT_TIMEOUT_MS: whole(100, 60_000).default(3_000),
  /** The public address of the gateway, for the examples in skills documents. */
  PUBLIC_URL: publicUrl.default('http://127.0.0.1:8080'),
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
