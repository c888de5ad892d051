import { randomBytes } from 'node:crypto';
import { NotAvailableError, StartError } from '@granary/shared/start-error';
import { z } from 'zod';
import { openRootKey, type RootKey } from './root-key';
import { VaultClient, VaultFailure, VaultRefusal, type VaultOptions } from './vault-client';

/** The types of keys that authenticate associated data. */
const aeadTypes: readonly string[] = ['aes128-gcm96', 'aes256-gcm96', 'chacha20-poly1305', 'xchacha20-poly1305'];

const keySchema = z.object({ type: z.string(), derived: z.boolean().default(false), latest_version: z.number() });
const encryptedSchema = z.object({ ciphertext: z.string().regex(/^vault:v\d{1,9}:[A-Za-z0-9+/=]+$/) });
const decryptedSchema = z.object({ plaintext: z.string() });

export interface VaultKeyOptions extends VaultOptions {
  keyName: string;
}

/**
 * The driver for HashiCorp Vault: data keys are encrypted and decrypted by a key of a Transit secrets engine. The place
 * of a data key is its associated data, and the context of a key that derives others. Throws a NotAvailableError while
 * Vault cannot be reached or is sealed, and a StartError where the key or the rights of the token do not do.
 */
export async function openVaultKey({ keyName, ...options }: VaultKeyOptions): Promise<RootKey> {
  const vault = new VaultClient(options);
  const name = `${options.mount}/${keyName}`;
  const {
    type,
    derived,
    latest_version: latest,
  } = await explained(name, () => vault.call(`keys/${keyName}`, keySchema));
  if (!aeadTypes.includes(type)) {
    throw new StartError(
      `The key ${name} of Vault has the type ${type}, which does not do: make one of the type aes256-gcm96`,
    );
  }
  const placed = (place: string) => {
    const text = Buffer.from(place).toString('base64');
    return { associated_data: text, ...(derived && { context: text }) };
  };
  const key: RootKey = {
    id: vaultKeyId(options.namespace, options.mount, keyName),
    async wrap(dataKey, place) {
      const body = { plaintext: dataKey.toString('base64'), ...placed(place) };
      return Buffer.from((await vault.call(`encrypt/${keyName}`, encryptedSchema, body)).ciphertext);
    },
    async unwrap(wrapped, place) {
      const body = { ciphertext: wrapped.toString(), ...placed(place) };
      return Buffer.from((await vault.call(`decrypt/${keyName}`, decryptedSchema, body)).plaintext, 'base64');
    },
    isOutdated: (wrapped) => Number(/^vault:v(\d+):/.exec(wrapped.toString())?.[1]) < latest,
  };
  await explained(name, () => assertUsable(key, name));
  return openRootKey(key);
}

const vaultPrefix = 'vault:';

const vaultKeyId = (namespace: string | undefined, mount: string, keyName: string): string =>
  `${vaultPrefix}${namespace === undefined ? '' : `${namespace}/`}${mount}/${keyName}`;

/** The place in Vault of the key with this id; undefined for the id of another provider. */
export const vaultKeyPlace = (id: string): string | undefined =>
  id.startsWith(vaultPrefix) ? id.slice(vaultPrefix.length) : undefined;

/** Throws a StartError where the key does not give back what it has wrapped, or gives it to another place. */
async function assertUsable(key: RootKey, name: string): Promise<void> {
  const [probe, place] = [randomBytes(32), 'probe'];
  const wrapped = await key.wrap(probe, place);
  if (!probe.equals(await key.unwrap(wrapped, place))) {
    throw new StartError(`The key ${name} of Vault does not give back what it has encrypted`);
  }
  const moved = await key.unwrap(wrapped, 'another place').catch((error: unknown) => {
    if (error instanceof VaultRefusal && error.status === 400) return undefined;
    throw error;
  });
  if (moved) {
    throw new StartError(
      'This Vault ignores associated_data, so wrapped keys could be exchanged: use Vault 1.13 or newer',
    );
  }
}

/**
 * Runs a call to Vault. Throws a StartError that says what a person has to do where Vault refuses, and a
 * NotAvailableError where it fails.
 */
async function explained<T>(name: string, use: () => Promise<T>): Promise<T> {
  try {
    return await use();
  } catch (error) {
    if (error instanceof VaultFailure) throw new NotAvailableError(error.message, { cause: error });
    if (!(error instanceof VaultRefusal)) throw error;
    throw new StartError(`The key ${name} of Vault cannot be used. ${error.message}: ${remedyFor(error)}`, {
      cause: error,
    });
  }
}

function remedyFor({ status, message }: VaultRefusal): string {
  if (status === 403) {
    return 'the token in ENCRYPTION_VAULT_TOKEN_FILE has expired, or its policy lacks a right of docs/encryption.md';
  }
  if (status === 404 || message.includes('encryption key not found')) {
    return 'check ENCRYPTION_VAULT_MOUNT, ENCRYPTION_VAULT_KEY and ENCRYPTION_VAULT_NAMESPACE, and make the key in Vault';
  }
  return 'check the settings ENCRYPTION_VAULT_… and the log of Vault';
}
