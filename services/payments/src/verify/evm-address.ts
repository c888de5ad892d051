import { keccak_256 } from '@noble/hashes/sha3';

const pattern = /^0x[0-9a-fA-F]{40}$/;

/** The address in lower case; undefined where it is none, and where its capitals are not its checksum (EIP-55). */
export function readEvmAddress(text: string): string | undefined {
  if (!pattern.test(text)) return undefined;
  const lower = text.toLowerCase();
  return text === lower || text === checksummed(lower) ? lower : undefined;
}

function checksummed(lower: string): string {
  const hash = Buffer.from(keccak_256(lower.slice(2))).toString('hex');
  return lower.replace(/[a-f]/g, (digit, at: number) => (hash[at - 2]! >= '8' ? digit.toUpperCase() : digit));
}
