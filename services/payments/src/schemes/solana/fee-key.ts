import { createHmac, createPrivateKey, createPublicKey, sign } from 'node:crypto';
import { base58 } from '@scure/base';
import { readSeedFile } from '@granary/shared/keys/seed-file';

/** The key of the account that pays the fees. It only signs: nothing hands it out. */
export interface FeeKey {
  /** The address in base58. */
  readonly address: string;
  /** Makes an Ed25519 signature of 64 bytes. The same message always gets the same signature. */
  sign(message: Uint8Array): Buffer;
}

// m/44'/501'/0'/0', the first account of wallets on Solana.
const path = [44, 501, 0, 0];
const hardened = 0x8000_0000;
// The DER form of a private key (RFC 8410) is this prefix and the 32 bytes of the key.
const derPrefix = Buffer.from('302e020100300506032b657004220420', 'hex');

/** The account m/44'/501'/0'/0' of the seed in a file. Throws a KeyFileError. */
export async function openFeeKey(file: string): Promise<FeeKey> {
  const advice = 'make one by X402_KEY_FILE=… granary payments seed, and see to it that this service may read it';
  return feeKeyOf(await readSeedFile(file, advice));
}

/** The account m/44'/501'/0'/0' of a seed, derived by SLIP-0010. */
export function feeKeyOf(seed: Uint8Array): FeeKey {
  const der = Buffer.concat([derPrefix, derive(seed, path)]);
  const secret = createPrivateKey({ key: der, format: 'der', type: 'pkcs8' });
  const { x } = createPublicKey(secret).export({ format: 'jwk' });
  return {
    address: base58.encode(Buffer.from(x!, 'base64url')),
    sign: (message) => sign(null, message, secret),
  };
}

/** The private key of Ed25519 at a path of hardened steps. */
export function derive(seed: Uint8Array, steps: readonly number[]): Buffer {
  let node = createHmac('sha512', 'ed25519 seed').update(seed).digest();
  for (const step of steps) {
    const index = Buffer.alloc(4);
    index.writeUInt32BE(hardened + step);
    const data = Buffer.concat([Buffer.alloc(1), node.subarray(0, 32), index]);
    node = createHmac('sha512', node.subarray(32)).update(data).digest();
  }
  return node.subarray(0, 32);
}
