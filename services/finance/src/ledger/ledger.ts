import { conflict, invalid, notFound, ServiceError } from '@granary/shared/errors';
import type { Queryable } from '@granary/shared/postgres/pool';
import { ACCOUNT_NOT_FOUND } from './accounts';
import { applyCommands } from './apply-commands';
import type { Command, HoldCommand, PostCommand, Refusal, TransferCommand, VoidCommand } from './commands';

export const INSUFFICIENT_FUNDS = 'INSUFFICIENT_FUNDS';
export const AMOUNT_OUT_OF_RANGE = 'AMOUNT_OUT_OF_RANGE';
export const TRANSFER_ID_TAKEN = 'TRANSFER_ID_TAKEN';
export const SAME_ACCOUNT = 'SAME_ACCOUNT';
export const UNIT_MISMATCH = 'UNIT_MISMATCH';
export const HOLD_NOT_FOUND = 'HOLD_NOT_FOUND';
export const HOLD_ENDED = 'HOLD_ENDED';
export const HOLD_EXCEEDED = 'HOLD_EXCEEDED';
export const HOLD_EXPIRED = 'HOLD_EXPIRED';
export const EXPIRY_PASSED = 'EXPIRY_PASSED';

/** `exists`: the same command was applied before, and nothing was changed. */
export type Outcome = 'created' | 'exists';

/**
 * One command by itself, for callers that have a transaction of their own. Throws a ServiceError with the refusal as
 * its reason. UNAVAILABLE means that the outcome is unknown: call again with the same id.
 */
export async function applyOne(db: Queryable, command: Command): Promise<Outcome> {
  const result = (await applyCommands(db, [[command]]))[0]![0]!;
  if (result.outcome === 'refused') throw refusalError(result.reason);
  return result.outcome;
}

export const postTransfer = (db: Queryable, command: Omit<TransferCommand, 'type'>): Promise<Outcome> =>
  applyOne(db, { type: 'transfer', ...command });

/** Holds an amount back, to be ended by `postHold` or `voidHold`. */
export const holdTransfer = (db: Queryable, command: Omit<HoldCommand, 'type'>): Promise<Outcome> =>
  applyOne(db, { type: 'hold', ...command });

export const postHold = (db: Queryable, command: Omit<PostCommand, 'type'>): Promise<Outcome> =>
  applyOne(db, { type: 'post', ...command });

export const voidHold = (db: Queryable, command: Omit<VoidCommand, 'type'>): Promise<Outcome> =>
  applyOne(db, { type: 'void', ...command });

/** A refusal as an error. */
export function refusalError(reason: Refusal): ServiceError {
  switch (reason) {
    case 'TRANSFER_ID_TAKEN':
      return conflict(TRANSFER_ID_TAKEN, 'The id belongs to another transfer');
    case 'INSUFFICIENT_FUNDS':
      return new ServiceError('FAILED_PRECONDITION', INSUFFICIENT_FUNDS, 'The balance is too small');
    case 'AMOUNT_OUT_OF_RANGE':
      return invalid('An amount is from 1 to 2^53-1, and so is what an account holds', {}, AMOUNT_OUT_OF_RANGE);
    case 'ACCOUNT_NOT_FOUND':
      return notFound(ACCOUNT_NOT_FOUND, 'There is no such account');
    case 'SAME_ACCOUNT':
      return invalid('A transfer is between two accounts', {}, SAME_ACCOUNT);
    case 'UNIT_MISMATCH':
      return invalid('The accounts have different units', {}, UNIT_MISMATCH);
    case 'HOLD_NOT_FOUND':
      return notFound(HOLD_NOT_FOUND, 'There is no such hold');
    case 'HOLD_ENDED':
      return new ServiceError('FAILED_PRECONDITION', HOLD_ENDED, 'The hold has been ended already');
    case 'HOLD_EXCEEDED':
      return new ServiceError('FAILED_PRECONDITION', HOLD_EXCEEDED, 'That is more than is held');
    case 'HOLD_EXPIRED':
      return new ServiceError('FAILED_PRECONDITION', HOLD_EXPIRED, 'The hold has expired');
    case 'EXPIRY_PASSED':
      return new ServiceError('FAILED_PRECONDITION', EXPIRY_PASSED, 'The hold would have expired already');
    case 'LINKED_FAILED':
    case 'COMMAND_INVALID':
      return invalid('The command is malformed');
  }
}
