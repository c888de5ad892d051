import { createHash } from 'node:crypto';

/** The time of the cause of a transfer, by its id. */
export const causeTime = (transfer: string): Date => new Date(parseInt(transfer.replace('-', '').slice(0, 12), 16));

/**
 * The id of the transfer that a cause has, a UUID of version 8 (RFC 9562): the 48 bits of the time of the cause in
 * milliseconds, then 74 bits of SHA-256 over the kind and the cause. The same cause always has the same id, so that it
 * moves money once, and ids of one time are neighbours in the index.
 *
 * @param time Of the cause; it must be the same each time.
 * @param kind Lower-case words.
 * @param cause What is unique among the causes of the kind.
 */
export function transferId(time: Date, kind: string, cause: string): string {
  const bytes = Buffer.alloc(16);
  // Kinds have no NUL, so that two pairs never make the same text.
  createHash('sha256').update(`${kind}\0${cause}`).digest().copy(bytes, 6, 0, 10);
  bytes.writeUIntBE(time.getTime(), 0, 6);
  bytes[6] = (bytes[6]! & 0x0f) | 0x80;
  bytes[8] = (bytes[8]! & 0x3f) | 0x80;
  return bytes.toString('hex').replace(/^(.{8})(.{4})(.{4})(.{4})(.{12})$/, '$1-$2-$3-$4-$5');
}
