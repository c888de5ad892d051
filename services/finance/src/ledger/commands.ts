import { maxUtia } from '@granary/shared/money/amounts';

interface CommandBase {
  /** A UUID made by the caller, who repeats the command with it until the result is definite. See `transferId`. */
  id: string;
  /** Why money moves (`payout`, `retention`, …), lower-case; of the end of a hold the kind of the hold. */
  kind: string;
}

interface Movement extends CommandBase {
  debitAccount: string;
  creditAccount: string;
  /** The amount in the unit of both accounts, from 1 to 2^53-1. */
  amount: bigint;
  /** Names what the money moves for, such as the id of a quote or a payout. At most 200 characters. */
  ref: string;
}

/** Moves an amount at once. */
export interface TransferCommand extends Movement {
  type: 'transfer';
  /** Moves what the debit account has if that is less than `amount`, even 0. */
  atMost?: boolean;
}

/** Holds an amount back until it is posted or voided. */
export interface HoldCommand extends Movement {
  type: 'hold';
  /** From this time on, the hold cannot be posted. It is voided soon after. */
  expiresAt?: Date;
}

/** Moves what is held, or a part of it, and voids the rest. */
export interface PostCommand extends CommandBase {
  type: 'post';
  holdId: string;
  /** Undefined: all that is held. */
  amount?: bigint;
}

/** Ends a hold without moving anything. */
export interface VoidCommand extends CommandBase {
  type: 'void';
  holdId: string;
}

export type Command = TransferCommand | HoldCommand | PostCommand | VoidCommand;

/** Commands that are applied all or not at all, in this order; most have one. */
export type Group = readonly Command[];

/** Why a command was refused; nothing of its group has been applied, and repeating it later may succeed. */
export const refusals = [
  /** The id belongs to another transfer. */
  'TRANSFER_ID_TAKEN',
  'INSUFFICIENT_FUNDS',
  /** The amount is not from 1 to 2^53-1, or the credit account would exceed 2^53-1. */
  'AMOUNT_OUT_OF_RANGE',
  'ACCOUNT_NOT_FOUND',
  'SAME_ACCOUNT',
  'UNIT_MISMATCH',
  /** No hold of that kind has the id. */
  'HOLD_NOT_FOUND',
  /** Another command has posted or voided the hold. */
  'HOLD_ENDED',
  'HOLD_EXCEEDED',
  'HOLD_EXPIRED',
  /** A new hold that would have expired already. */
  'EXPIRY_PASSED',
  /** Another command of the group was refused. */
  'LINKED_FAILED',
  /** An id, account, kind or ref that is malformed. */
  'COMMAND_INVALID',
] as const;
export type Refusal = (typeof refusals)[number];

/** `exists`: the same command was applied before, and nothing was changed. `amount`: what was moved or held. */
export type Result = { outcome: 'created' | 'exists'; amount: bigint } | { outcome: 'refused'; reason: Refusal };

const uuid = /^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$/;
// Printable ASCII: what Postgres and every log can carry.
const account = /^[!-~]{1,100}$/;
const kind = /^[a-z][a-z_]{0,39}$/;
// No control characters, of which Postgres cannot store NUL, and no half of a surrogate pair.
const ref = /^[^\p{Cc}\p{Cs}]{0,200}$/u;

/** The refusal of a command that needs no look at the ledger, if there is one. */
export function findDefect(command: Command): Refusal | undefined {
  if (!uuid.test(command.id) || !kind.test(command.kind)) return 'COMMAND_INVALID';
  if (command.type === 'post' || command.type === 'void') {
    if (!uuid.test(command.holdId)) return 'COMMAND_INVALID';
    return command.type === 'post' && command.amount !== undefined && !isAmount(command.amount)
      ? 'AMOUNT_OUT_OF_RANGE'
      : undefined;
  }
  const { debitAccount, creditAccount, amount } = command;
  if (!account.test(debitAccount) || !account.test(creditAccount) || !ref.test(command.ref)) return 'COMMAND_INVALID';
  if (command.type === 'hold' && command.expiresAt) {
    if (Number.isNaN(command.expiresAt.getTime())) return 'COMMAND_INVALID';
    // Postgres cannot store every time before our era.
    if (command.expiresAt.getTime() < 0) return 'EXPIRY_PASSED';
  }
  if (debitAccount === creditAccount) return 'SAME_ACCOUNT';
  return isAmount(amount) ? undefined : 'AMOUNT_OUT_OF_RANGE';
}

const isAmount = (amount: bigint): boolean => amount >= 1n && amount <= maxUtia;
