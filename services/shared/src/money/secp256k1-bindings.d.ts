// The package has no types.
declare module 'secp256k1/bindings' {
  interface Bindings {
    ecdsaRecover(signature: Uint8Array, recovery: number, digest: Uint8Array, compressed: boolean): Uint8Array;
    ecdsaVerify(signature: Uint8Array, digest: Uint8Array, publicKey: Uint8Array): boolean;
  }
  const bindings: Bindings;
  export = bindings;
}
