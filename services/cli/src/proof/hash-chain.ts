import { createHash, type Hash } from 'node:crypto';

/** A link of a hash chain; docs/hash-chain.md says what its hash is made of. */
export interface Link {
  height: number;
  /** 64 hexadecimal digits. */
  hash: string;
}

export const chainStart: Link = { height: 0, hash: '0'.repeat(64) };

export const sha256Hex = (text: string): string => createHash('sha256').update(text, 'utf8').digest('hex');

/** The hash of the link behind `last`, whose content hash is known. */
export function linkHash(last: Link, content: string): string {
  const height = Buffer.alloc(8);
  height.writeBigUInt64BE(BigInt(last.height + 1));
  const hash = createHash('sha256').update(last.hash, 'hex').update(height);
  return hash.update(content, 'hex').digest('hex');
}

/** Adds what a document contributes to the content hash of its commit; `sha256` is that of its text. */
export function addDocument(content: Hash, collection: string, id: string, sha256: string): void {
  for (const part of [Buffer.from(collection), Buffer.from(id), Buffer.from(sha256, 'hex')]) {
    const length = Buffer.alloc(4);
    length.writeUInt32BE(part.length);
    content.update(length).update(part);
  }
}
