import { createCipheriv, createDecipheriv, createHash, hkdfSync, randomBytes } from 'node:crypto';
import { makeSeedFile, readSeedFile } from '@granary/shared/keys/seed-file';

const [nonceBytes, tagBytes] = [12, 16];

/**
 * Wraps the data keys of apps: a file with a seed (below), or a key of Vault (vault-root-key.ts). It never leaves its
 * provider.
 */
export interface RootKey {
  /** Identifies the provider and the key without revealing it; it is stored with what the key has wrapped. */
  readonly id: string;
  /** Encrypts a data key. `place` is authenticated with it: it must be the same when it is unwrapped. */
  wrap(dataKey: Buffer, place: string): Promise<Buffer>;
  /** Rejects where the key or the place is another. */
  unwrap(wrapped: Buffer, place: string): Promise<Buffer>;
  /** Whether an earlier version of this key has wrapped it. */
  isOutdated?(wrapped: Buffer): boolean;
}

export interface RootKeyFileOptions {
  create: boolean;
  /** Whether nothing was wrapped yet. */
  isNew: boolean;
  /** The user of this process. */
  userId?: number | undefined;
}

/** The root keys that this process has opened, by their ids: data keys name the one that wrapped them. */
const opened = new Map<string, RootKey>();

export const rootKeyOf = (id: string): RootKey | undefined => opened.get(id);

/** Makes a root key known to this process. */
export function openRootKey(key: RootKey): RootKey {
  opened.set(key.id, key);
  return key;
}

/**
 * The driver for one machine: a file with a seed, from which the key is derived by HKDF-SHA-256. A missing file is made
 * when `create` is true. Throws a KeyFileError.
 */
export async function openRootKeyFile(
  path: string,
  { create, isNew, userId = process.getuid?.() }: RootKeyFileOptions,
): Promise<RootKey> {
  if (create) await makeSeedFile(path);
  const advice = isNew
    ? 'make one by the command seed, or set ENCRYPTION_KEY_FILE_CREATE=true where it is kept'
    : 'encrypted fields of this database cannot be read without it. Put it back from a backup';
  return openRootKey(rootKeyFrom(await readSeedFile(path, advice, userId)));
}

function rootKeyFrom(seed: Uint8Array): RootKey {
  const derived = (info: string) => Buffer.from(hkdfSync('sha256', seed, '', info, 32));
  const key = derived('granary root key');
  const id = createHash('sha256').update(derived('granary root key id')).digest('hex').slice(0, 32);
  const wrap = (dataKey: Buffer, place: string) => {
    const nonce = randomBytes(nonceBytes);
    const cipher = createCipheriv('aes-256-gcm', key, nonce).setAAD(Buffer.from(place));
    return Buffer.concat([nonce, cipher.update(dataKey), cipher.final(), cipher.getAuthTag()]);
  };
  const unwrap = (wrapped: Buffer, place: string) => {
    const end = wrapped.length - tagBytes;
    const decipher = createDecipheriv('aes-256-gcm', key, wrapped.subarray(0, nonceBytes));
    decipher.setAAD(Buffer.from(place)).setAuthTag(wrapped.subarray(end));
    return Buffer.concat([decipher.update(wrapped.subarray(nonceBytes, end)), decipher.final()]);
  };
  return {
    id,
    wrap: async (dataKey, place) => wrap(dataKey, place),
    unwrap: async (wrapped, place) => unwrap(wrapped, place),
  };
}
