import { base58 } from '@scure/base';
import type { SettlementTransaction } from '../../networks/settlement-network';
import type { FeeKey } from './fee-key';

const signatureBytes = 64;
const addressBytes = 32;
/** The header of a message: how many sign, and how many of the accounts cannot change. */
const headerBytes = 3;

/**
 * A payment that was verified, as it is sent: with the signature of the payer of the fee in the first place, which is
 * empty in `transaction` (base64). The transaction is known by that signature.
 */
export function signFee(transaction: string, key: FeeKey): SettlementTransaction {
  const bytes = Buffer.from(transaction, 'base64');
  const signature = key.sign(messageOf(bytes));
  bytes.set(signature, 1);
  return { bytes, hash: base58.encode(signature) };
}

/** The block that a transaction names, in base58. */
export function blockhashOf(transaction: Buffer): string {
  const message = messageOf(transaction);
  // A message of version 0 begins with its version, in front of the header.
  const header = message[0]! >= 0x80 ? 1 : 0;
  const count = message[header + headerBytes]!;
  const offset = header + headerBytes + 1 + count * addressBytes;
  return base58.encode(message.subarray(offset, offset + addressBytes));
}

/** The part of a transaction that is signed. The lengths of a payment are below 128, so each takes a byte. */
const messageOf = (transaction: Buffer): Buffer => transaction.subarray(1 + transaction[0]! * signatureBytes);
