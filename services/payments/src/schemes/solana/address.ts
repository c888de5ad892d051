import { base58 } from '@scure/base';

/** 32 bytes need 32 to 44 digits. Decoding takes quadratic time, so others are not decoded. */
const pattern = /^[1-9A-HJ-NP-Za-km-z]{32,44}$/;

/**
 * The 32 bytes of an address on Solana, in hexadecimal digits, which are cheap to compare; undefined for another text.
 */
export function readSolanaAddress(text: string): string | undefined {
  if (!pattern.test(text)) return undefined;
  const bytes = base58.decode(text);
  return bytes.length === 32 ? Buffer.from(bytes).toString('hex') : undefined;
}

/** The address, in base58, of 32 bytes in hexadecimal digits. */
export const solanaAddressOf = (hex: string): string => base58.encode(Buffer.from(hex, 'hex'));
