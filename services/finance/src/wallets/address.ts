import { ripemd160 } from '@noble/hashes/legacy';
import { sha256 } from '@noble/hashes/sha2';
import { bech32 } from '@scure/base';

/** The address of a compressed secp256k1 public key on a Cosmos chain, see ADR-028 of the Cosmos SDK. */
export function addressOf(publicKey: Uint8Array, prefix: string): string {
  return bech32.encode(prefix, bech32.toWords(ripemd160(sha256(publicKey))));
}

/** A valid address in its lower-case form, or a sentence that says what is wrong with the text. */
export function parseAddress(text: string, prefix: string): { address: string } | { problem: string } {
  const decoded = bech32.decodeUnsafe(text);
  if (!decoded) return { problem: 'is not a bech32 address with a valid checksum' };
  if (decoded.prefix !== prefix) return { problem: `is an address of another chain: the prefix must be "${prefix}"` };
  const payload = bech32.fromWordsUnsafe(decoded.words);
  // 20 bytes: the hash of a key; 32 bytes: a contract or a module.
  if (payload?.length !== 20 && payload?.length !== 32) return { problem: 'is not an address: its length is wrong' };
  return { address: text.toLowerCase() };
}
