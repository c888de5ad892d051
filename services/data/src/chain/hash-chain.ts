import { sha256 } from '../values/sha256';

/** The latest commit of an app, at which its chain ends. */
export interface Head {
  height: bigint;
  /** Grows with the height, by one or more: the place of the commit among all of the app; its documents carry it. */
  ordinal: bigint;
  hash: Buffer;
}

/** The hash before the first commit. */
export const genesisHash = Buffer.alloc(32);

/** A document that a commit stored. */
export interface Entry {
  id: string;
  /** The SHA-256 of its text, a byte in each character: a buffer for each of a bulk would be most of its garbage. */
  sha256: string;
}

/** One link of an app's hash chain: what was stored, at which height, under which hash. */
export interface Link extends Head {
  content: Buffer;
  /** The ids of the entries, in order. */
  ids: readonly string[];
  /** The SHA-256 of each text, one after the other: they stay when the texts are erased. */
  hashes: Buffer;
}

/** The part of a link that does not depend on its place in the chain. */
export type LinkContent = Pick<Link, 'content' | 'ids' | 'hashes'>;

export const linkContent = (collection: string, entries: readonly Entry[]): LinkContent => ({
  content: contentHash(collection, entries),
  ids: entries.map(({ id }) => id),
  hashes: Buffer.from(entries.map((entry) => entry.sha256).join(''), 'latin1'),
});

/** The next link after a head. */
export function nextLink(head: Head, { content, ids, hashes }: LinkContent): Link {
  const height = head.height + 1n;
  return { height, ordinal: head.ordinal + 1n, hash: linkHash(head.hash, height, content), content, ids, hashes };
}

const lengthBytes = 4;

/**
 * SHA-256 over collection, id and SHA-256 of the text of each document in order, each part with its length in bytes
 * before it (32 bits, big-endian).
 */
export const contentHash = (collection: string, entries: readonly Entry[]): Buffer =>
  sha256(contentParts(collection, entries));

/**
 * Returns the bytes that the content hash covers. Where entries come in parts, the bytes of the parts follow each
 * other.
 */
export function contentParts(collection: string, entries: readonly Entry[]): Buffer {
  const name = Buffer.from(collection);
  let size = 0;
  for (const { id, sha256: content } of entries) {
    size += 3 * lengthBytes + name.length + Buffer.byteLength(id) + content.length;
  }
  const parts = Buffer.allocUnsafe(size);
  let offset = 0;
  for (const { id, sha256: content } of entries) {
    offset = parts.writeUInt32BE(name.length, offset);
    offset += name.copy(parts, offset);
    const idBytes = parts.write(id, offset + lengthBytes);
    offset = parts.writeUInt32BE(idBytes, offset) + idBytes;
    offset = parts.writeUInt32BE(content.length, offset);
    offset += parts.write(content, offset, 'latin1');
  }
  return parts;
}

/** SHA-256 over the previous link's hash, the height (64 bits, big-endian) and the content hash. */
export function linkHash(previous: Buffer, height: bigint, content: Buffer): Buffer {
  const heightBytes = Buffer.alloc(8);
  heightBytes.writeBigUInt64BE(height);
  return sha256(Buffer.concat([previous, heightBytes, content]));
}
