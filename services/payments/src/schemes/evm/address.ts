import { LRUCache } from 'lru-cache';
import { keccak_256 } from '@noble/hashes/sha3';

const networkPattern = /^eip155:[1-9]\d{0,15}$/;
const pattern = /^0x[0-9a-fA-F]{40}$/;

/** Whether a text is the CAIP-2 name of an EVM network. */
export const isEvmNetwork = (name: string): boolean => networkPattern.test(name);

/**
 * Addresses with capitals that were right, in lower case. A payment names four, of which the asset and the recipient,
 * twice, are those of most others; a hash takes 5 us.
 */
const checked = new LRUCache<string, string>({ max: 1_000 });

/** The address in lower case; undefined where it is none, and where its capitals are not its checksum (EIP-55). */
export function readEvmAddress(text: string): string | undefined {
  const address = checked.get(text);
  if (address !== undefined) return address;
  if (!pattern.test(text)) return undefined;
  const lower = text.toLowerCase();
  if (text === lower) return lower;
  if (text !== checksummed(lower)) return undefined;
  checked.set(text, lower);
  return lower;
}

/** The address in lower case; a text that is none as it is. */
export const spelledOnce = (address: string): string => readEvmAddress(address) ?? address;

const allCapitals = /^0x[0-9A-F]{40}$/;

/**
 * An address in capitals throughout, which are no checksum, in lower case; another text as it is. Settings may have
 * both.
 */
export const lowerAllCapitals = (text: string): string => (allCapitals.test(text) ? text.toLowerCase() : text);

/** An address in lower case with the capitals of its checksum (EIP-55). */
export function checksummed(lower: string): string {
  const hash = Buffer.from(keccak_256(lower.slice(2))).toString('hex');
  return lower.replace(/[a-f]/g, (digit, at: number) => (hash[at - 2]! >= '8' ? digit.toUpperCase() : digit));
}
