import type { Logger } from '@granary/shared/logger';
import type { Pool } from '@granary/shared/postgres/pool';
import { NotAvailableError, StartError } from '@granary/shared/start-error';
import type { DataConfig } from '../config';
import { hasDataKeys, otherRootKeyId, rewrapKeys } from './data-keys';
import { openRootKeyFile, type RootKey } from './root-key';
import { VaultFailure, VaultRefusal } from './vault-client';
import { openVaultKey, vaultKeyPlace } from './vault-root-key';

/**
 * Opens the root key that the settings name, if any, and wraps by it the data keys that the old one or an earlier
 * version has wrapped. Throws a KeyFileError, a NotAvailableError while Vault is, and a StartError where encrypted
 * fields need another key.
 */
export async function openConfiguredKey(
  config: DataConfig,
  { pool, log }: { pool: Pool; log: Logger },
): Promise<RootKey | undefined> {
  const isNew = !(await hasDataKeys(pool));
  const rootKey = await configuredKey(config, isNew);
  if (rootKey) await rewrapped(log, () => rewrapKeys(pool, rootKey, rootKey));
  if (rootKey && (await otherRootKeyId(pool, rootKey)) !== undefined) {
    const old = await oldKey(config);
    if (old) await rewrapped(log, () => rewrapKeys(pool, old, rootKey));
  }
  const other = await otherRootKeyId(pool, rootKey);
  if (other === undefined) return rootKey;
  const setting = rootKey ? `the settings name ${describeKey(rootKey.id)}` : 'ENCRYPTION_KEY_FILE is not set';
  throw new StartError(
    `Encrypted fields of this database need ${describeKey(other)}, but ${setting}. ${remedyFor(other)}`,
  );
}

async function configuredKey(config: DataConfig, isNew: boolean): Promise<RootKey | undefined> {
  const { ENCRYPTION_KEY_FILE: file, ENCRYPTION_KEY_FILE_CREATE: create, ENCRYPTION_VAULT_KEY: name } = config;
  if (name !== undefined) return vaultKey(config, name);
  // A new key in the place of one that is missing would not decrypt anything.
  return file === undefined ? undefined : openRootKeyFile(file, { create: create && isNew, isNew });
}

async function oldKey(config: DataConfig): Promise<RootKey | undefined> {
  const { ENCRYPTION_OLD_KEY_FILE: file, ENCRYPTION_OLD_VAULT_KEY: name } = config;
  if (name !== undefined) return vaultKey(config, name);
  return file === undefined ? undefined : openRootKeyFile(file, { create: false, isNew: false });
}

/** The settings that a key of Vault needs are there, see config.ts. */
const vaultKey = (config: DataConfig, keyName: string): Promise<RootKey> =>
  openVaultKey({
    keyName,
    url: config.ENCRYPTION_VAULT_URL!,
    mount: config.ENCRYPTION_VAULT_MOUNT,
    namespace: config.ENCRYPTION_VAULT_NAMESPACE,
    tokenFile: config.ENCRYPTION_VAULT_TOKEN_FILE!,
    caFile: config.ENCRYPTION_VAULT_CA_FILE,
    timeoutMs: config.ENCRYPTION_VAULT_TIMEOUT_MS,
  });

async function rewrapped(log: Logger, rewrap: () => Promise<number>): Promise<void> {
  try {
    const count = await rewrap();
    if (count > 0) log.info({ rewrapped: count }, 'data keys are wrapped by the new root key');
  } catch (error) {
    if (error instanceof VaultFailure) throw new NotAvailableError(error.message, { cause: error });
    if (!(error instanceof VaultRefusal)) throw error;
    throw new StartError(
      `A data key cannot be wrapped anew. ${error.message}: is this the key that has wrapped it, and does it still decrypt that version?`,
      { cause: error },
    );
  }
}

function describeKey(id: string): string {
  const place = vaultKeyPlace(id);
  return place === undefined ? `the key ${id} of a seed file` : `the key ${place} of Vault`;
}

const remedyFor = (id: string): string =>
  vaultKeyPlace(id) === undefined
    ? 'Put the file back from a backup, or name it in ENCRYPTION_OLD_KEY_FILE to replace its key.'
    : 'Set ENCRYPTION_VAULT_KEY and its other settings as they were, or name it in ENCRYPTION_OLD_VAULT_KEY to replace it.';
