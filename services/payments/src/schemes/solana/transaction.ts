import { Refusal } from '../../verify/refusal';

/** A transaction has at most the size of a packet on Solana. */
export const transactionBytesMax = 1_232;

/** An instruction to a program. Accounts are places in the accounts of the transaction. */
export interface Instruction {
  /** Address, in hexadecimal digits. */
  program: string;
  accounts: number[];
  data: Buffer;
}

/** A transaction as it is sent. Whether its signatures are valid is not known. */
export interface SolanaTransaction {
  /** One of 64 bytes for each of the first accounts, in their order. */
  signatures: Buffer[];
  /** The part that is signed. */
  message: Buffer;
  /** Addresses, in hexadecimal digits; the first one pays the fee. */
  accounts: string[];
  isWritable: (account: number) => boolean;
  instructions: Instruction[];
}

/**
 * Reads a transaction with a message of the legacy form or of version 0 by the rules of the network, which has one form
 * for each: no byte more, lengths in their shortest form, no account twice. Throws a Refusal. Accounts from lookup
 * tables are refused, because only the chain has those.
 */
export function readSolanaTransaction(bytes: Buffer): SolanaTransaction {
  const reader = new Reader(bytes);
  const signatures = reader.list(() => reader.take(64));
  const message = bytes.subarray(reader.at);
  const isVersioned = (message[0] ?? 0) >= 0x80;
  if (isVersioned && reader.byte() !== 0x80) throw undecodable('The message is of an unknown version');
  const [signers, readonlySigners, readonlyOthers] = [reader.byte(), reader.byte(), reader.byte()];
  const accounts = reader.list(() => reader.take(32).toString('hex'));
  if (signers !== signatures.length || readonlySigners >= signers || signers + readonlyOthers > accounts.length) {
    throw undecodable('The header of the message does not fit its accounts and signatures');
  }
  if (new Set(accounts).size !== accounts.length) throw undecodable('An account is listed twice');
  // The hash of a recent block, which only the chain can judge.
  reader.take(32);
  const instructions = reader.list(() => readInstruction(reader, accounts));
  if (isVersioned && reader.length() !== 0) {
    throw new Refusal(
      'invalid_exact_svm_smart_wallet_alt_resolution_not_available',
      'Transactions with address lookup tables cannot be verified here: that takes the chain',
    );
  }
  if (reader.at !== bytes.length) throw undecodable('The transaction has bytes behind its end');
  const isWritable = (account: number) =>
    account < signers ? account < signers - readonlySigners : account < accounts.length - readonlyOthers;
  return { signatures, message, accounts, isWritable, instructions };
}

function readInstruction(reader: Reader, accounts: readonly string[]): Instruction {
  const place = (): number => {
    const index = reader.byte();
    if (index >= accounts.length) throw undecodable('An instruction names an account that is not listed');
    return index;
  };
  const program = place();
  if (program === 0) throw undecodable('The payer of the fee is called as a program');
  const places = reader.list(place);
  return { program: accounts[program]!, accounts: places, data: reader.take(reader.length()) };
}

class Reader {
  at = 0;

  constructor(private readonly bytes: Buffer) {}

  byte(): number {
    return this.take(1)[0]!;
  }

  take(length: number): Buffer {
    const end = this.at + length;
    if (end > this.bytes.length) throw undecodable('The transaction ends too early');
    const taken = this.bytes.subarray(this.at, end);
    this.at = end;
    return taken;
  }

  /** Seven bits in each byte, the lowest first. A third byte would be of a length that no transaction has. */
  length(): number {
    const low = this.byte();
    if (low < 0x80) return low;
    const high = this.byte();
    if (high === 0 || high >= 0x80) throw undecodable('A length is too long, or not in its shortest form');
    return (low & 0x7f) | (high << 7);
  }

  list<T>(item: () => T): T[] {
    const items: T[] = [];
    for (let left = this.length(); left > 0; left -= 1) items.push(item());
    return items;
  }
}

const undecodable = (message: string) =>
  new Refusal('invalid_exact_svm_payload_transaction_could_not_be_decoded', message);
