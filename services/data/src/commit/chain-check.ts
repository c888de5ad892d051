import { genesisHash, linkHash } from './hash-chain';

/** A place in a hash chain: the height and the hash of a link, or the start. */
export interface ChainPosition {
  height: bigint;
  hash: Buffer;
}

/** A link as it was stored. */
export interface StoredLink extends ChainPosition {
  /** The content hash. */
  content: Buffer;
}

/** The first link that does not follow from the one before it. */
export class BrokenChainError extends Error {
  override readonly name = 'BrokenChainError';
  constructor(
    readonly height: bigint,
    why: string,
  ) {
    super(`link ${height} ${why}`);
  }
}

export const chainStart: ChainPosition = { height: 0n, hash: genesisHash };

/**
 * Recomputes each link from the one before it, and returns the position of the last. Long chains are checked in pages:
 * the result is where the next page starts.
 * @throws BrokenChainError for the first link that is missing or has another hash
 */
export function followChain(from: ChainPosition, links: Iterable<StoredLink>): ChainPosition {
  let last = from;
  for (const { height, hash, content } of links) {
    const expected = last.height + 1n;
    if (height !== expected) throw new BrokenChainError(expected, 'is missing');
    if (!linkHash(last.hash, height, content).equals(hash)) {
      throw new BrokenChainError(height, 'does not follow from the link before it');
    }
    last = { height, hash };
  }
  return last;
}
