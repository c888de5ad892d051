import { createHash } from 'node:crypto';
import { secp256k1 } from '@noble/curves/secp256k1';
import { addressOf } from '@granary/shared/money/cosmos/address';
import { encodeSigned, encodeTransfer, type Transfer } from '@granary/shared/money/cosmos/transaction';

/** A key with an account on a Cosmos chain. */
export interface CosmosPayer {
  secret: Uint8Array;
  publicKey: Uint8Array;
  address: string;
}

export function newCosmosPayer(prefix = 'celestia'): CosmosPayer {
  const secret = secp256k1.utils.randomPrivateKey();
  const publicKey = secp256k1.getPublicKey(secret, true);
  return { secret, publicKey, address: addressOf(publicKey, prefix) };
}

/** A signed transfer, as nodes take it. */
export function signCosmos({ secret, publicKey, address }: CosmosPayer, transfer: Omit<Transfer, 'sender'>): Buffer {
  const unsigned = encodeTransfer({ ...transfer, sender: address }, publicKey, { mayLackTimeout: true });
  const digest = createHash('sha256').update(unsigned.signDoc).digest();
  return Buffer.from(encodeSigned(unsigned, secp256k1.sign(digest, secret, { lowS: true }).toBytes('compact')));
}
