import { createHash } from 'node:crypto';
import { bech32 } from '@scure/base';
import { addressOf } from '@granary/shared/money/cosmos/address';
import type { KeyName, KeyProvider } from '../wallets/keys';
import { encodeSigned, encodeTransfer, type Transfer } from '@granary/shared/money/cosmos/transaction';

/** A transaction that nodes take as it is. */
export interface SignedTransaction {
  bytes: Uint8Array;
  /** The hash by which nodes find the transaction: SHA-256 of the bytes as upper-case hex. */
  hash: string;
}

/**
 * Signs a transaction with a key of the seed; the same transaction has the same bytes each time. Throws a RangeError
 * when the sender is not the address of the key, or as encodeTransfer does.
 */
export async function signTransfer(keys: KeyProvider, key: KeyName, transfer: Transfer): Promise<SignedTransaction> {
  const publicKey = await keys.publicKey(key);
  const { prefix } = bech32.decode(transfer.sender as `${string}1${string}`);
  if (addressOf(publicKey, prefix) !== transfer.sender) {
    throw new RangeError(`${transfer.sender} is not the address of the key that is to sign`);
  }
  const unsigned = encodeTransfer(transfer, publicKey);
  const digest = createHash('sha256').update(unsigned.signDoc).digest();
  const bytes = encodeSigned(unsigned, await keys.sign(key, digest));
  return { bytes, hash: transactionHash(bytes) };
}

/** SHA-256 as upper-case hex. */
export function transactionHash(bytes: Uint8Array): string {
  return createHash('sha256').update(bytes).digest('hex').toUpperCase();
}
