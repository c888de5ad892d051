import { ripemd160 } from '@noble/hashes/legacy';
import { sha256 } from '@noble/hashes/sha2';
import { bech32 } from '@scure/base';

/** The address of a compressed secp256k1 public key on a Cosmos chain, see ADR-028 of the Cosmos SDK. */
export function addressOf(publicKey: Uint8Array, prefix: string): string {
  return bech32.encode(prefix, bech32.toWords(ripemd160(sha256(publicKey))));
}

/**
 * The problem of a text that is not a valid address, undefined for one that is. Bech32 also allows capitals; wallets
 * and explorers do not.
 */
export function addressProblem(text: string, prefix: string): string | undefined {
  const decoded = bech32.decodeUnsafe(text);
  if (!decoded) return 'is not a bech32 address with a valid checksum';
  if (decoded.prefix !== prefix) return `is an address of another chain: the prefix must be "${prefix}"`;
  const payload = bech32.fromWordsUnsafe(decoded.words);
  // 20 bytes: the hash of a key; 32 bytes: a contract or a module.
  if (payload?.length !== 20 && payload?.length !== 32) return 'is not an address: its length is wrong';
  return text === text.toLowerCase() ? undefined : 'must be in lower case';
}
