import { recover } from 'tiny-secp256k1';

const halfOrder = 0x7fffffffffffffffffffffffffffffff5d576e7357a4501ddfe92f46681b20a0n;

/** Whether the half `s` of a signature r ‖ s is in its low form: each signature has a second one with the other form. */
export const isLowS = (signature: Uint8Array): boolean =>
  BigInt(`0x${Buffer.from(signature.subarray(32, 64)).toString('hex')}`) <= halfOrder;

/** The public key, 64 bytes without a prefix, that has signed a digest; undefined where there is none. */
export function recoverPublicKey(digest: Uint8Array, signature: Uint8Array, recovery: 0 | 1): Uint8Array | undefined {
  try {
    return recover(digest, signature, recovery, false)?.subarray(1);
  } catch {
    // r or s is zero, or not below the order of the curve.
    return undefined;
  }
}
