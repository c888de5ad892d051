import { createHash, type Hash } from 'node:crypto';
import { sha256Text } from '../values/sha256';
import { contentHash, contentParts, genesisHash, linkHash, type Entry } from './hash-chain';

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

/** A stored text, with what the commit has of it. */
export interface StoredEntry {
  id: string;
  /** Null where the hash was not kept: commits of the first releases whose texts are gone. */
  sha256: Buffer | null;
  /** Null where it is not stored any more, or is not a document. */
  text: string | null;
}

/** A link with its entries, or with a part of them: those of a large commit come in parts, in order. */
export interface LinkPart extends StoredLink {
  collection: string;
  /** The number of entries of the whole commit. */
  entryCount: number;
  /** The place of the first entry of this part in the commit. */
  place: number;
  entries: readonly StoredEntry[];
}

/** The first link that does not follow from the one before it, or has other contents than were committed. */
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
  for (const link of links) last = follow(last, link);
  return last;
}

function follow(last: ChainPosition, { height, hash, content }: StoredLink): ChainPosition {
  const expected = last.height + 1n;
  if (height !== expected) throw new BrokenChainError(expected, 'is missing');
  if (!linkHash(last.hash, height, content).equals(hash)) {
    throw new BrokenChainError(height, 'does not follow from the link before it');
  }
  return { height, hash };
}

/** A link whose parts have not all come. */
interface OpenLink {
  /** The running hash of the parts so far; undefined once the hash of an entry is unknown. */
  content: Hash | undefined;
  /** The place of the next part. */
  next: number;
}

const lacks = (height: bigint, place: number) =>
  new BrokenChainError(height, `lacks its documents from place ${place} on`);

/** Checks a chain with its contents, part by part, in constant memory. */
export class ChainChecker {
  #last: ChainPosition = chainStart;
  #open: OpenLink | undefined;
  /** The id of the first text of the open link that does not have its hash. */
  #altered: string | undefined;
  /** Texts that have the hash that was committed, and entries of which no text is stored. */
  readonly texts = { checked: 0, absent: 0 };

  /** The last link that is whole. */
  get position(): ChainPosition {
    return this.#last;
  }

  /** Throws BrokenChainError. */
  add(part: LinkPart): void {
    const height = this.#last.height + 1n;
    if (!this.#open && part.height !== height) throw new BrokenChainError(height, 'is missing');
    const place = this.#open?.next ?? 0;
    if (part.height !== height || part.place !== place) throw lacks(height, place);
    const entries = part.entries.map((entry) => this.#entry(entry));
    const isKnown = entries.every(({ sha256: hash }) => hash.length > 0);
    if (!this.#open && entries.length === part.entryCount) {
      this.#close(part, isKnown ? contentHash(part.collection, entries) : undefined);
      return;
    }
    const open = (this.#open ??= { content: createHash('sha256'), next: 0 });
    if (!isKnown) open.content = undefined;
    open.content?.update(contentParts(part.collection, entries));
    open.next += entries.length;
    if (open.next < part.entryCount) return;
    this.#open = undefined;
    this.#close(part, open.content?.digest());
  }

  /** Ends the check after the last part. Throws BrokenChainError where entries are missing. */
  end(): ChainPosition {
    if (this.#open) throw lacks(this.#last.height + 1n, this.#open.next);
    return this.#last;
  }

  /** Returns the id and the hash of an entry, which the content hash covers. An unknown hash is empty. */
  #entry({ id, sha256, text }: StoredEntry): Entry {
    const kept = sha256?.toString('latin1');
    if (text === null) {
      this.texts.absent += 1;
      return { id, sha256: kept ?? '' };
    }
    const hash = sha256Text(Buffer.from(text));
    this.texts.checked += 1;
    if (kept !== undefined && kept !== hash) this.#altered ??= id;
    return { id, sha256: kept ?? hash };
  }

  /** `content`: recomputed from the entries, undefined where that is not possible. */
  #close(part: LinkPart, content: Buffer | undefined): void {
    if (content && !content.equals(part.content)) {
      throw new BrokenChainError(part.height, 'has other ids or hashes of texts than those of its content hash');
    }
    if (this.#altered !== undefined) {
      throw new BrokenChainError(part.height, `has another text of the document ${this.#altered} than was committed`);
    }
    this.#last = follow(this.#last, part);
  }
}
