// The package has its types where CommonJS does not look for them.
declare module 'tiny-secp256k1' {
  export function recover(
    digest: Uint8Array,
    signature: Uint8Array,
    recovery: 0 | 1 | 2 | 3,
    compressed?: boolean,
  ): Uint8Array | null;
  export function verify(digest: Uint8Array, publicKey: Uint8Array, signature: Uint8Array, strict?: boolean): boolean;
}
