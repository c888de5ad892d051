import * as tiny from 'tiny-secp256k1';

/** The functions of the curve that are used. Both throw for a value that is no number or point of the curve. */
interface Curve {
  /** The public key in 65 bytes. */
  recover: (digest: Uint8Array, signature: Uint8Array, recovery: 0 | 1) => Uint8Array | null;
  /** Whether a signature is valid; only its low form is. */
  verify: (digest: Uint8Array, publicKey: Uint8Array, signature: Uint8Array) => boolean;
}

/** libsecp256k1 in WebAssembly, for every platform. */
const inWebAssembly: Curve = {
  recover: (digest, signature, recovery) => tiny.recover(digest, signature, recovery, false),
  verify: (digest, publicKey, signature) => tiny.verify(digest, publicKey, signature, true),
};

/**
 * libsecp256k1 itself, five times as fast. Only the bindings are loaded: what the package uses without them is
 * JavaScript with known vulnerabilities. Undefined where it has no build for the platform.
 */
function nativeCurve(): Curve | undefined {
  try {
    // eslint-disable-next-line @typescript-eslint/no-require-imports -- it throws on other platforms
    const bindings = require('secp256k1/bindings') as typeof import('secp256k1/bindings');
    return {
      recover: (digest, signature, recovery) => bindings.ecdsaRecover(signature, recovery, digest, false),
      verify: (digest, publicKey, signature) => bindings.ecdsaVerify(signature, digest, publicKey),
    };
  } catch {
    return undefined;
  }
}

/** The implementations of the curve on this platform, the fastest first. */
export const curves: readonly Curve[] = [nativeCurve(), inWebAssembly].filter((curve) => curve !== undefined);
const usual = curves[0]!;

const halfOrder = 0x7fffffffffffffffffffffffffffffff5d576e7357a4501ddfe92f46681b20a0n;

/**
 * Whether the half `s` of a signature r ‖ s is in its low form: each signature has a second one with the other form.
 */
export const isLowS = (signature: Uint8Array): boolean =>
  BigInt(`0x${Buffer.from(signature.subarray(32, 64)).toString('hex')}`) <= halfOrder;

/** The public key, 64 bytes without a prefix, that has signed a digest; undefined where there is none. */
export function recoverPublicKey(
  digest: Uint8Array,
  signature: Uint8Array,
  recovery: 0 | 1,
  { recover } = usual,
): Uint8Array | undefined {
  try {
    return recover(digest, signature, recovery)?.subarray(1);
  } catch {
    // r or s is zero, or not below the order of the curve.
    return undefined;
  }
}

/**
 * Whether a signature r ‖ s of 64 bytes is that of a compressed public key for a digest of 32 bytes, in its low form:
 * the other form and whatever is no point, no number of the curve or of another length is not.
 */
export function isSignatureOf(
  publicKey: Uint8Array,
  digest: Uint8Array,
  signature: Uint8Array,
  { verify } = usual,
): boolean {
  if (publicKey.length !== 33) return false;
  try {
    return verify(digest, publicKey, signature);
  } catch {
    return false;
  }
}
