import { createHash, randomBytes } from 'node:crypto';
import { link, mkdir, open, readFile, stat, unlink } from 'node:fs/promises';
import { dirname } from 'node:path';
import { HARDENED_OFFSET, HDKey } from '@scure/bip32';
import { generateMnemonic, mnemonicToSeed, validateMnemonic } from '@scure/bip39';
import { wordlist } from '@scure/bip39/wordlists/english';
import { StartError } from '@granary/shared/start-error';

/**
 * A key of the seed: that of a wallet, by its number (m/44'/118'/0'/0/number), or that of the hot wallet, which pays out
 * (m/44'/118'/1'/0/0). The two branches differ in a hardened step, so no key of one helps to find a key of the other.
 */
export type KeyName = { wallet: number } | 'hot';

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

/** The seed cannot be used: the file is missing, readable by others, or holds something else. */
export class KeyFileError extends StartError {
  override readonly name = 'KeyFileError';
}

/**
 * The driver for one machine: a file with a BIP-39 mnemonic of 24 words, which only its owner may read. A missing
 * file is made when `create` is true. Throws a KeyFileError.
 */
export async function openKeyFile(path: string, options: { create: boolean }): Promise<KeyProvider> {
  if (options.create) await makeKeyFile(path);
  const mnemonic = await readKeyFile(path);
  const coin = HDKey.fromMasterSeed(await mnemonicToSeed(mnemonic)).derive("m/44'/118'");
  const account = coin.deriveChild(HARDENED_OFFSET);
  const wallets = account.deriveChild(0);
  const hot = coin.derive("m/1'/0/0");
  const keyOf = (key: KeyName) => (key === 'hot' ? hot : wallets.deriveChild(key.wallet));
  return {
    fingerprint: createHash('sha256').update(account.publicKey!).digest('hex').slice(0, 32),
    publicKey: async (key) => keyOf(key).publicKey!,
    sign: async (key, digest) => keyOf(key).sign(digest),
  };
}

async function readKeyFile(path: string): Promise<string> {
  const found = await stat(path).catch((cause: unknown) => {
    throw new KeyFileError(
      `The key file ${path} cannot be read: the wallets of this database were made from it. Put it back from a backup`,
      {
        cause,
      },
    );
  });
  if ((found.mode & 0o077) !== 0) {
    throw new KeyFileError(
      `The key file ${path} is open to others: only its owner may have rights on it. Run chmod 600 ${path}`,
    );
  }
  const mnemonic = (await readFile(path, 'utf8')).trim();
  if (!validateMnemonic(mnemonic, wordlist))
    throw new KeyFileError(`The key file ${path} does not hold a BIP-39 mnemonic`);
  return mnemonic;
}

/**
 * The file is written and flushed under a temporary name, then linked to its own unless that exists. So there is never a
 * partial seed, and never a second one in its place.
 */
async function makeKeyFile(path: string): Promise<void> {
  if (await exists(path)) return;
  await mkdir(dirname(path), { recursive: true, mode: 0o700 });
  const draft = `${path}.${randomBytes(6).toString('hex')}`;
  const file = await open(draft, 'wx', 0o600);
  try {
    await file.writeFile(`${generateMnemonic(wordlist, 256)}\n`);
    await file.sync();
    await link(draft, path).catch((error: NodeJS.ErrnoException) => {
      if (error.code !== 'EEXIST') throw error;
    });
  } finally {
    await file.close();
    await unlink(draft);
  }
  const directory = await open(dirname(path), 'r');
  await directory.sync().finally(() => directory.close());
}

function exists(path: string): Promise<boolean> {
  return stat(path).then(
    () => true,
    (error: NodeJS.ErrnoException) => {
      if (error.code === 'ENOENT') return false;
      throw error;
    },
  );
}
