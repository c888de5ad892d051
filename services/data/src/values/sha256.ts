import { hash } from 'node:crypto';

/** SHA-256, a byte in each character: Node makes this string in half the time that it takes for a buffer. */
export const sha256Text = (bytes: Buffer): string => hash('sha256', bytes, 'binary');

export const sha256 = (bytes: Buffer): Buffer => Buffer.from(sha256Text(bytes), 'latin1');
