import { createHash } from 'node:crypto';
import { HARDENED_OFFSET, HDKey } from '@scure/bip32';
import { makeSeedFile, readSeedFile } from '@granary/shared/keys/seed-file';

/**
 * A key of the seed: that of a wallet, by its number (m/44'/118'/0'/0/number), that of the hot wallet, which pays out
 * (m/44'/118'/1'/0/0), or that of the broker, to which users give grants (m/44'/118'/2'/0/0). The branches differ in a
 * hardened step, so no key of one helps to find a key of another.
 */
export type KeyName = { wallet: number } | 'hot' | 'broker';

/** Keeps the seed of all addresses; private keys never leave it. A vault or a KMS can implement it as well. */
export interface KeyProvider {
  /** Identifies the seed without revealing it. */
  readonly fingerprint: string;
  /** The compressed secp256k1 public key. */
  publicKey(key: KeyName): Promise<Uint8Array>;
  /**
   * The secp256k1 signature of a SHA-256 digest: r and s, 32 bytes each, with the lower s and the nonce of RFC 6979, so
   * the same digest has the same signature.
   */
  sign(key: KeyName, digest: Uint8Array): Promise<Uint8Array>;
}

export interface KeyFileOptions {
  create: boolean;
  /** Whether no wallet was made from the seed yet. */
  isNew?: boolean;
  /** The user of this process. */
  userId?: number | undefined;
}

/**
 * The driver for one machine: a file with a seed. A missing file is made when `create` is true. Throws a
 * KeyFileError.
 */
export async function openKeyFile(
  path: string,
  { create, isNew = false, userId = process.getuid?.() }: KeyFileOptions,
): Promise<KeyProvider> {
  if (create) await makeSeedFile(path);
  const advice = isNew
    ? 'make one by the command seed, or set KEY_FILE_CREATE=true where it is kept'
    : 'the wallets of this database were made from it. Put it back from a backup';
  const coin = HDKey.fromMasterSeed(await readSeedFile(path, advice, userId)).derive("m/44'/118'");
  const account = coin.deriveChild(HARDENED_OFFSET);
  const wallets = account.deriveChild(0);
  const named = { hot: coin.derive("m/1'/0/0"), broker: coin.derive("m/2'/0/0") };
  const keyOf = (key: KeyName) => (typeof key === 'string' ? named[key] : wallets.deriveChild(key.wallet));
  return {
    fingerprint: createHash('sha256').update(account.publicKey!).digest('hex').slice(0, 32),
    publicKey: async (key) => keyOf(key).publicKey!,
    sign: async (key, digest) => keyOf(key).sign(digest),
  };
}
