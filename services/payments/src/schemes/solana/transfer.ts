import { isUtf8 } from 'node:buffer';
import { Refusal } from '../../verify/refusal';
import { programs } from './programs';
import type { Instruction, SolanaTransaction } from './transaction';

/** A transfer of tokens; addresses are in hexadecimal digits. */
export interface SolanaTransfer {
  tokenProgram: string;
  source: string;
  mint: string;
  destination: string;
  /** The account that may take from the source and signs: its owner, or a delegate of the owner. */
  authority: string;
  amount: bigint;
  decimals: number;
  memos: Buffer[];
}

/** Both bound what the payer of the fee spends: units of work, and millionths of a lamport for each. */
const computeUnitsMax = 200_000;
const microLamportsMax = 5_000_000n;
const instructionsMin = 3;
const places = ['fourth', 'fifth', 'sixth', 'seventh'] as const;
const transferChecked = 12;

/**
 * Reads a transaction that has the instructions of a payment and no other: the limit and the price of its work, one
 * transfer, then memos and assertions of wallets, `instructionsMax` in all. Throws a Refusal.
 */
export function readSolanaTransfer(transaction: SolanaTransaction, instructionsMax: number): SolanaTransfer {
  const { instructions, signatures } = transaction;
  if (instructions.length < instructionsMin || instructions.length > instructionsMax) {
    throw new Refusal(
      'invalid_exact_svm_payload_transaction_instructions_length',
      `The transaction must have ${instructionsMin} to ${instructionsMax} instructions`,
    );
  }
  if (signatures.length > 2) {
    throw new Refusal(
      'invalid_exact_svm_payload_excessive_signers',
      'Only the payer of the fee and the payer of the tokens may sign: each signature has a fee',
    );
  }
  const [limit, price, transfer, ...others] = instructions as [Instruction, Instruction, Instruction];
  checkComputeLimit(limit);
  checkComputePrice(price);
  if (instructions.some(({ accounts }) => accounts.includes(0))) refuseFeePayer(transfer);
  others.forEach(checkOther);
  return readTransfer(transaction, transfer, others);
}

function checkComputeLimit({ program, accounts, data }: Instruction): void {
  if (program !== programs.computeBudget || accounts.length > 0 || data.length !== 5 || data[0] !== 2) {
    throw new Refusal(
      'invalid_exact_svm_payload_transaction_instructions_compute_limit_instruction',
      'The first instruction must be SetComputeUnitLimit',
    );
  }
  if (data.readUInt32LE(1) > computeUnitsMax) {
    throw new Refusal(
      'invalid_exact_svm_payload_transaction_instructions_compute_limit_instruction_too_high',
      `At most ${computeUnitsMax} compute units are accepted`,
    );
  }
}

function checkComputePrice({ program, accounts, data }: Instruction): void {
  if (program !== programs.computeBudget || accounts.length > 0 || data.length !== 9 || data[0] !== 3) {
    throw new Refusal(
      'invalid_exact_svm_payload_transaction_instructions_compute_price_instruction',
      'The second instruction must be SetComputeUnitPrice',
    );
  }
  if (data.readBigUInt64LE(1) > microLamportsMax) {
    throw new Refusal(
      'invalid_exact_svm_payload_transaction_instructions_compute_price_instruction_too_high',
      `At most ${microLamportsMax} microlamports for a compute unit are accepted`,
    );
  }
}

function refuseFeePayer(transfer: Instruction): never {
  if (transfer.accounts.includes(0)) {
    throw new Refusal(
      'invalid_exact_svm_payload_transaction_fee_payer_transferring_funds',
      'The payer of the fee must have no part in the transfer',
    );
  }
  throw new Refusal('invalid_exact_svm_invalid_fee_payer', 'The payer of the fee must have no part in an instruction');
}

function checkOther({ program, data }: Instruction, index: number): void {
  if (program !== programs.memo && program !== programs.lighthouse) {
    throw new Refusal(
      `invalid_exact_svm_payload_unknown_${places[index]!}_instruction`,
      'Behind the transfer there may only be memos and instructions of Lighthouse',
    );
  }
  if (program === programs.memo && !isUtf8(data)) throw refusedTransaction('A memo must be in UTF-8');
}

/**
 * The amount and the decimals stand behind the number of the instruction. A fifth account would be one of several
 * signers.
 */
function readTransfer(
  { accounts, isWritable, signatures }: SolanaTransaction,
  { program, accounts: named, data }: Instruction,
  others: Instruction[],
): SolanaTransfer {
  if (data.length !== 10 || data[0] !== transferChecked || named.length !== 4) {
    throw new Refusal(
      'invalid_exact_svm_payload_no_transfer_instruction',
      'The third instruction must be TransferChecked, with four accounts',
    );
  }
  const [source, mint, destination, authority] = named as [number, number, number, number];
  if (authority >= signatures.length) throw refusedTransaction('Who transfers the tokens must sign');
  if (!isWritable(source) || !isWritable(destination)) {
    throw refusedTransaction('The accounts of the transfer must be writable');
  }
  return {
    tokenProgram: program,
    source: accounts[source]!,
    mint: accounts[mint]!,
    destination: accounts[destination]!,
    authority: accounts[authority]!,
    amount: data.readBigUInt64LE(1),
    decimals: data[9]!,
    memos: others.filter((other) => other.program === programs.memo).map((memo) => memo.data),
  };
}

const refusedTransaction = (message: string) => new Refusal('invalid_exact_svm_payload_transaction', message);
