import { createHash, type Hash } from 'node:crypto';
import { Failure } from '../failure.ts';
import { addDocument, linkHash, sha256Hex, type Link } from './hash-chain.ts';

/** A commit, or a part of a large one, as `GET …/commits?texts=true` has it. */
export interface CommitPart extends Link {
  content_hash: string;
  stores: 'documents' | 'blob';
  collection: string;
  document_count: number;
  /** The place of the first of `documents` in the commit. */
  place: number;
  documents: ReadonlyArray<{ id: string; sha256: string | null; text?: string | null }>;
}

/** Counts over the commits that fit. */
export interface CheckedCounts {
  documents: number;
  /** Documents whose stored text has the hash that was committed. */
  texts: number;
  /** Documents that were erased or purged: only their hashes are there. */
  withoutText: number;
  /** Files, of which the hashes are there. */
  blobs: number;
  /** Documents of which not even the hash was kept, so that the content hash of their commit is taken as it is. */
  withoutHash: number;
}

export const broken = (height: number, why: string): Failure =>
  new Failure(`The chain breaks at height ${height}: ${why}`, {
    nextStep: 'Keep what you have of it, and compare with a backup or an export of before.',
  });

export const hashForm = /^[0-9a-f]{64}$/;

/** A commit of which not all parts have come. */
interface OpenCommit {
  content: Hash;
  nextPlace: number;
  isHashKnown: boolean;
  alteredId: string | undefined;
}

const openCommit = (): OpenCommit => ({
  content: createHash('sha256'),
  nextPlace: 0,
  isHashKnown: true,
  alteredId: undefined,
});

/** Recomputes a chain part by part, in constant memory. Throws Failure for the first link that does not fit. */
export class ChainCheck {
  readonly counts: CheckedCounts = { documents: 0, texts: 0, withoutText: 0, blobs: 0, withoutHash: 0 };
  /** The last link that is whole. */
  last: Link;
  private open = openCommit();

  constructor(start: Link) {
    this.last = start;
  }

  add(part: CommitPart): void {
    const height = this.last.height + 1;
    const { open } = this;
    if (open.nextPlace === 0 && part.height !== height) {
      throw broken(height, `the service goes on with height ${part.height}, so a commit is missing or out of order`);
    }
    if (part.height !== height || part.place !== open.nextPlace) {
      throw broken(height, `the documents from place ${open.nextPlace} on are missing`);
    }
    const hashes = [part.hash, part.content_hash, ...part.documents.map(({ sha256 }) => sha256)];
    if (!hashes.every((hash) => hash === null || hashForm.test(hash))) throw broken(height, 'a hash of it is no hash');
    for (const document of part.documents) this.addDocument(part, document);
    open.nextPlace += part.documents.length;
    if (open.nextPlace >= part.document_count) this.close(part);
    else if (part.documents.length === 0) {
      throw broken(height, `the documents from place ${open.nextPlace} on are missing`);
    }
  }

  /** Throws Failure where the last commit is not whole. */
  end(): void {
    if (this.open.nextPlace === 0) return;
    throw broken(this.last.height + 1, `the documents from place ${this.open.nextPlace} on are missing`);
  }

  private addDocument(
    { stores, collection }: CommitPart,
    { id, sha256, text = null }: CommitPart['documents'][number],
  ): void {
    const { counts, open } = this;
    const actual = text === null ? undefined : sha256Hex(text);
    const hash = sha256 ?? actual;
    if (stores === 'blob') counts.blobs += 1;
    else counts.documents += 1;
    if (actual !== undefined) counts.texts += 1;
    else if (stores === 'documents' && hash !== undefined) counts.withoutText += 1;
    if (actual !== undefined && actual !== hash) open.alteredId ??= id;
    if (hash === undefined) {
      counts.withoutHash += 1;
      open.isHashKnown = false;
    } else addDocument(open.content, collection, id, hash);
  }

  private close(part: CommitPart): void {
    const { content, isHashKnown, alteredId } = this.open;
    this.open = openCommit();
    if (isHashKnown && content.digest('hex') !== part.content_hash) {
      throw broken(part.height, 'its content hash is not that of its ids and of the hashes of its texts');
    }
    if (alteredId !== undefined) {
      throw broken(part.height, `the text of the document "${alteredId}" is not the one that was committed`);
    }
    if (linkHash(this.last, part.content_hash) !== part.hash) {
      throw broken(part.height, 'its hash does not follow from the commit before it and from its content');
    }
    this.last = { height: part.height, hash: part.hash };
  }
}
