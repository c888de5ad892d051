/** The bytes of JSON's grammar. */
export const TAB = 0x09;
export const LINE_FEED = 0x0a;
export const CARRIAGE_RETURN = 0x0d;
export const SPACE = 0x20;
export const QUOTE = 0x22;
export const PLUS = 0x2b;
export const COMMA = 0x2c;
export const MINUS = 0x2d;
export const DOT = 0x2e;
export const ZERO = 0x30;
export const NINE = 0x39;
export const COLON = 0x3a;
export const OPEN_BRACKET = 0x5b;
export const BACKSLASH = 0x5c;
export const CLOSE_BRACKET = 0x5d;
export const LOWER_E = 0x65;
export const LOWER_F = 0x66;
export const LOWER_N = 0x6e;
export const LOWER_T = 0x74;
export const LOWER_U = 0x75;
export const OPEN_BRACE = 0x7b;
export const CLOSE_BRACE = 0x7d;

/** Whether `size` bytes from `at` on equal the bytes of `other` from `otherAt` on. */
export function sameBytes(bytes: Buffer, at: number, other: Buffer, otherAt: number, size: number): boolean {
  if (at + size > bytes.length) return false;
  for (let i = 0; i < size; i += 1) if (bytes[at + i] !== other[otherAt + i]) return false;
  return true;
}

/** The value of the string between two quotes, validated before: from `start` up to, without it, `end`. */
export function decodeString(bytes: Buffer, start: number, end: number, escaped: boolean): string {
  // The escapes have been validated, so the native parser accepts them.
  if (escaped) return JSON.parse(bytes.toString('utf8', start - 1, end + 1)) as string;
  return bytes.toString('utf8', start, end);
}

/** A hash of a key's UTF-8 bytes, the same one that the scanner computes for each key. */
export function hashKey(text: Buffer): number {
  let hash = 0;
  for (const byte of text) hash = (Math.imul(hash, 31) + byte) | 0;
  return hash;
}
