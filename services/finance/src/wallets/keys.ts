import { createHash, randomBytes } from 'node:crypto';
import type { Stats } from 'node:fs';
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

/** A BIP-39 mnemonic of 24 words, with a line break. */
export const newSeed = (): string => `${generateMnemonic(wordlist, 256)}\n`;

export interface KeyFileOptions {
  create: boolean;
  /** Whether no wallet was made from the seed yet. */
  isNew?: boolean;
  /** The user of this process. */
  userId?: number | undefined;
}

/**
 * The driver for one machine: a file with a seed, see `isPrivate`. A missing file is made when `create` is true. Throws a
 * KeyFileError.
 */
export async function openKeyFile(
  path: string,
  { create, isNew = false, userId = process.getuid?.() }: KeyFileOptions,
): Promise<KeyProvider> {
  if (create) await makeKeyFile(path);
  const mnemonic = await readKeyFile(path, isNew, userId);
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

async function readKeyFile(path: string, isNew: boolean, userId: number | undefined): Promise<string> {
  const found = await stat(path).catch((cause: unknown) => {
    throw new KeyFileError(
      isNew
        ? `The key file ${path} cannot be read: make one by the command seed, or set KEY_FILE_CREATE=true where it is kept`
        : `The key file ${path} cannot be read: the wallets of this database were made from it. Put it back from a backup`,
      { cause },
    );
  });
  if (!isPrivate(found, userId)) {
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
 * Whether nobody but the owner has rights on a file. The group may read what belongs to another user: a mounted secret belongs
 * to root, and is readable by a process without root's rights through its group only.
 */
function isPrivate({ mode, uid }: Stats, userId: number | undefined): boolean {
  return (mode & 0o077) === 0 || (uid !== userId && (mode & 0o037) === 0);
}

/**
 * Returns whether it made the file. It is written and flushed under a temporary name, then linked to its own unless that exists. So there is never a
 * partial seed, and never a second one in its place.
 */
export async function makeKeyFile(path: string): Promise<boolean> {
  if (await exists(path)) return false;
  await mkdir(dirname(path), { recursive: true, mode: 0o700 });
  const draft = `${path}.${randomBytes(6).toString('hex')}`;
  const file = await open(draft, 'wx', 0o600);
  let isMade: boolean;
  try {
    await file.writeFile(newSeed());
    await file.sync();
    isMade = await link(draft, path).then(
      () => true,
      (error: NodeJS.ErrnoException) => {
        if (error.code === 'EEXIST') return false;
        throw error;
      },
    );
  } finally {
    await file.close();
    await unlink(draft);
  }
  const directory = await open(dirname(path), 'r');
  await directory.sync().finally(() => directory.close());
  return isMade;
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
