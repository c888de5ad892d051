import { createPublicKey, verify, type KeyObject } from 'node:crypto';

// The curve −x² + y² = 1 + d·x²·y² over the integers modulo `prime`.
const prime = 2n ** 255n - 19n;
const d = 0x52036cee2b6ffe738cc740797779e89800700a4d4141d8ab75eb4dca135978a3n;
const y8 = 0x7a03ac9277fdc74ec6cc392cfa53202a0f67100d760b3cba4fd84d3d706a17c7n;
/** The y coordinates of the points that, multiplied by 8, give the neutral element. */
const smallOrder: ReadonlySet<bigint> = new Set([0n, 1n, prime - 1n, y8, prime - y8]);
// The DER form of a public key (RFC 8410) is this prefix and the 32 bytes of the key.
const derPrefix = Buffer.from('302a300506032b6570032100', 'hex');

/**
 * Whether a signature of 64 bytes is that of a public key of 32 bytes, by the rules of Solana: as node:crypto verifies
 * it, which takes the second half below the order of the group, and without the points of small order, for which
 * anybody can make signatures.
 */
export function isEd25519Signature(publicKey: Buffer, message: Buffer, signature: Buffer): boolean {
  if (isSmallOrder(publicKey) || isSmallOrder(signature.subarray(0, 32))) return false;
  return verify(null, message, keyOf(publicKey), signature);
}

const keyOf = (bytes: Buffer): KeyObject =>
  createPublicKey({ key: Buffer.concat([derPrefix, bytes]), format: 'der', type: 'spki' });

const isSmallOrder = (point: Buffer): boolean => smallOrder.has(yOf(point));

/** Whether 32 bytes are a point of the curve, so that they may be a public key. */
export function isOnCurve(bytes: Buffer): boolean {
  const squared = yOf(bytes) ** 2n % prime;
  // x² is a fraction, which is a square where the product of its terms is one.
  const product = ((squared + prime - 1n) * (d * squared + 1n)) % prime;
  return power(product, (prime - 1n) / 2n) <= 1n;
}

/** The number that the bytes encode, lowest byte first, without the sign in the highest bit. */
const yOf = (point: Buffer): bigint =>
  (BigInt(`0x${Buffer.from(point).reverse().toString('hex')}`) & (2n ** 255n - 1n)) % prime;

function power(base: bigint, exponent: bigint): bigint {
  let result = 1n;
  for (let factor = base, left = exponent; left > 0n; left >>= 1n) {
    if (left & 1n) result = (result * factor) % prime;
    factor = (factor * factor) % prime;
  }
  return result;
}
