import { secp256k1 } from '@noble/curves/secp256k1';
import { keccak_256 } from '@noble/hashes/sha3';
import { HDKey } from '@scure/bip32';
import { readSeedFile } from '@granary/shared/keys/seed-file';

/** A signature of secp256k1 with the lower s. */
export interface EvmSignature {
  r: bigint;
  s: bigint;
  yParity: number;
}

/** The key of the account that pays the gas. It only signs: nothing hands it out. */
export interface GasKey {
  /** 0x and 40 digits in lower case. */
  readonly address: string;
  /** Signs a digest of 32 bytes, with the nonce of RFC 6979: the same digest has the same signature. */
  sign(digest: Uint8Array): EvmSignature;
}

/** The account m/44'/60'/0'/0/0 of the seed in a file. Throws a KeyFileError. */
export async function openGasKey(path: string): Promise<GasKey> {
  const advice = 'make one by X402_KEY_FILE=… granary payments seed, and see to it that this service may read it';
  const { publicKey, privateKey } = HDKey.fromMasterSeed(await readSeedFile(path, advice)).derive("m/44'/60'/0'/0/0");
  const point = secp256k1.ProjectivePoint.fromHex(publicKey!).toRawBytes(false);
  return {
    address: `0x${Buffer.from(keccak_256(point.subarray(1)).subarray(12)).toString('hex')}`,
    sign: (digest) => {
      const { r, s, recovery } = secp256k1.sign(digest, privateKey!, { lowS: true });
      return { r, s, yParity: recovery };
    },
  };
}
