import { createHash, randomBytes } from 'node:crypto';
import { secp256k1 } from '@noble/curves/secp256k1';
import { curves, isSignatureOf as isSignatureBy, recoverPublicKey } from './secp256k1';

const digestOf = (text: string) => createHash('sha256').update(text).digest();

function newSignature() {
  const secret = secp256k1.utils.randomPrivateKey();
  const digest = randomBytes(32);
  const signature = secp256k1.sign(digest, secret, { lowS: true, prehash: false });
  return { digest, signature, publicKey: secp256k1.getPublicKey(secret, true) };
}

/** What another library says of it, which takes a shorter digest for the same number without its leading zeros. */
function isValidElsewhere(publicKey: Uint8Array, digest: Uint8Array, signature: Uint8Array): boolean {
  try {
    if (publicKey.length !== 33 || digest.length !== 32) return false;
    return secp256k1.verify(signature, digest, publicKey, { lowS: true, prehash: false });
  } catch {
    return false;
  }
}

test('where the package has a build for the platform, it is used', () => {
  const hasBuild = ['linux-x64', 'darwin-arm64', 'win32-x64'].includes(`${process.platform}-${process.arch}`);
  expect(curves).toHaveLength(hasBuild ? 2 : 1);
});

describe.each(curves.map((curve, at) => [at, curve] as const))('implementation %i', (_, curve) => {
  const isSignatureOf = (publicKey: Uint8Array, digest: Uint8Array, signature: Uint8Array) =>
    isSignatureBy(publicKey, digest, signature, curve);

  test('the key that has signed is recovered, and of anything else another one or none', () => {
    for (let n = 0; n < 32; n += 1) {
      const { digest, signature, publicKey } = newSignature();
      const bytes = signature.toBytes('compact');
      const [right, wrong] = [signature.recovery, 1 - signature.recovery] as Array<0 | 1>;
      const key = Buffer.from(secp256k1.Point.fromBytes(publicKey).toBytes(false).subarray(1));
      expect(Buffer.from(recoverPublicKey(digest, bytes, right!, curve)!)).toEqual(key);
      for (const other of [
        recoverPublicKey(digest, bytes, wrong!, curve),
        recoverPublicKey(randomBytes(32), bytes, right!, curve),
      ]) {
        expect(other && Buffer.from(other)).not.toEqual(key);
      }
    }
    const { digest, signature } = newSignature();
    const order = Buffer.from(secp256k1.CURVE.n.toString(16), 'hex');
    const bytes = signature.toBytes('compact');
    for (const part of [Buffer.alloc(32), order, Buffer.alloc(32, 255)]) {
      expect(recoverPublicKey(digest, Buffer.concat([part, bytes.subarray(32)]), 0, curve)).toBeUndefined();
      expect(recoverPublicKey(digest, Buffer.concat([bytes.subarray(0, 32), part]), 0, curve)).toBeUndefined();
    }
    expect(recoverPublicKey(digest.subarray(1), bytes, 0, curve)).toBeUndefined();
    expect(recoverPublicKey(digest, bytes.subarray(1), 0, curve)).toBeUndefined();
  });

  test('a signature is valid for its key and digest, in its low form only', () => {
    const { digest, signature, publicKey } = newSignature();
    const bytes = signature.toBytes('compact');
    expect(isSignatureOf(publicKey, digest, bytes)).toBe(true);
    expect(isSignatureOf(publicKey, digestOf('another'), bytes)).toBe(false);
    expect(isSignatureOf(newSignature().publicKey, digest, bytes)).toBe(false);
    const high = new secp256k1.Signature(signature.r, secp256k1.CURVE.n - signature.s);
    expect(isSignatureOf(publicKey, digest, high.toBytes('compact'))).toBe(false);
  });

  test('bytes that are no key, no digest or no signature are refused, as by another library', () => {
    const { digest, signature, publicKey } = newSignature();
    const bytes = Buffer.from(signature.toBytes('compact'));
    const order = Buffer.from(secp256k1.CURVE.n.toString(16), 'hex');
    const half = (at: number, value: Buffer) => {
      const changed = Buffer.from(bytes);
      value.copy(changed, at);
      return changed;
    };
    const wrong: Array<[Uint8Array, Uint8Array, Uint8Array]> = [
      ...[Buffer.alloc(32), order, Buffer.alloc(32, 255)].flatMap(
        (value): Array<[Uint8Array, Uint8Array, Uint8Array]> => [
          [publicKey, digest, half(0, value)],
          [publicKey, digest, half(32, value)],
        ],
      ),
      [publicKey, digest, bytes.subarray(1)],
      [publicKey, digest.subarray(1), bytes],
      [publicKey.subarray(1), digest, bytes],
      [Buffer.alloc(33, 2), digest, bytes],
      [Buffer.alloc(33), digest, bytes],
      [secp256k1.Point.fromBytes(publicKey).toBytes(false), digest, bytes],
    ];
    for (const parts of wrong) {
      expect(isSignatureOf(...parts)).toBe(false);
      expect(isValidElsewhere(...parts)).toBe(false);
    }
    for (let at = 0; at < 64; at += 1) {
      const changed = half(at, Buffer.from([bytes[at]! ^ (1 << (at % 8))]));
      expect(isSignatureOf(publicKey, digest, changed)).toBe(isValidElsewhere(publicKey, digest, changed));
    }
  });
});
