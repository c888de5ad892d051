import { keccak_256 } from '@noble/hashes/sha3';
import type { EvmAsset } from './assets';

/**
 * The authorization that the holder of a token signs. Addresses are in lower case; the nonce is 32 bytes in hexadecimal
 * digits.
 */
export interface Authorization {
  from: string;
  to: string;
  value: bigint;
  validAfter: bigint;
  validBefore: bigint;
  nonce: string;
}

const hashText = (text: string): Buffer => Buffer.from(keccak_256(text));
const domainType = hashText('EIP712Domain(string name,string version,uint256 chainId,address verifyingContract)');
const transferType = hashText(
  'TransferWithAuthorization(address from,address to,uint256 value,uint256 validAfter,uint256 validBefore,bytes32 nonce)',
);

/** The hash of the EIP-712 domain of a token. */
export function domainSeparatorOf({ name, version, chainId, address }: EvmAsset): Buffer {
  const words = [domainType, hashText(name), hashText(version), word(chainId), addressWord(address)];
  return Buffer.from(keccak_256(Buffer.concat(words)));
}

/** The digest that is signed: the EIP-712 hash of an authorization in a domain. */
export function authorizationDigest(domainSeparator: Buffer, authorization: Authorization): Uint8Array {
  const { from, to, value, validAfter, validBefore, nonce } = authorization;
  const struct = keccak_256(
    Buffer.concat([
      transferType,
      addressWord(from),
      addressWord(to),
      word(value),
      word(validAfter),
      word(validBefore),
      Buffer.from(nonce.slice(2), 'hex'),
    ]),
  );
  return keccak_256(Buffer.concat([Buffer.from([0x19, 0x01]), domainSeparator, struct]));
}

const word = (value: bigint): Buffer => Buffer.from(value.toString(16).padStart(64, '0'), 'hex');
const addressWord = (address: string): Buffer => Buffer.from(address.slice(2).padStart(64, '0'), 'hex');
