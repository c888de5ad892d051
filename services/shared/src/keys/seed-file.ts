import { randomBytes } from 'node:crypto';
import type { Stats } from 'node:fs';
import { link, mkdir, open, readFile, stat, unlink } from 'node:fs/promises';
import { dirname } from 'node:path';
import { generateMnemonic, mnemonicToSeed, validateMnemonic } from '@scure/bip39';
import { wordlist } from '@scure/bip39/wordlists/english';
import { StartError } from '../start-error';

/** The seed cannot be used: the file is missing, readable by others, or holds something else. */
export class KeyFileError extends StartError {
  override readonly name = 'KeyFileError';
}

/** A BIP-39 mnemonic of 24 words, with a line break. */
export const newSeed = (): string => `${generateMnemonic(wordlist, 256)}\n`;

/**
 * The seed (64 bytes) of the mnemonic in a file that nobody but its owner has rights on, see `isPrivate`. Throws a
 * KeyFileError, with what `advice` says about a file that cannot be read.
 */
export async function readSeedFile(
  path: string,
  advice: string,
  userId: number | undefined = process.getuid?.(),
): Promise<Uint8Array> {
  const stats = await stat(path).catch((cause: unknown) => {
    throw new KeyFileError(`The key file ${path} cannot be read: ${advice}`, { cause });
  });
  if (!isPrivate(stats, userId)) {
    throw new KeyFileError(
      `The key file ${path} is open to others: only its owner may have rights on it. Run chmod 600 ${path}`,
    );
  }
  const mnemonic = (await readFile(path, 'utf8')).trim();
  if (!validateMnemonic(mnemonic, wordlist))
    throw new KeyFileError(`The key file ${path} does not hold a BIP-39 mnemonic`);
  return mnemonicToSeed(mnemonic);
}

/**
 * Whether nobody but the owner has rights on a file. The group may read what belongs to another user: a mounted secret
 * belongs to root, and is readable by a process without root's rights through its group only.
 */
function isPrivate({ mode, uid }: Stats, userId: number | undefined): boolean {
  return (mode & 0o077) === 0 || (uid !== userId && (mode & 0o037) === 0);
}

/**
 * Returns whether it made the file. It is written and flushed under a temporary name, then linked to its own unless
 * that exists. So there is never a partial seed, and never a second one in its place.
 */
export async function makeSeedFile(path: string): Promise<boolean> {
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
