import { ServiceError } from '@granary/shared/errors';
import type { Queryable } from '@granary/shared/postgres/pool';
import { applyCommands } from '../../src/ledger/apply-commands';
import type { Command, HoldCommand, PostCommand, TransferCommand, VoidCommand } from '../../src/ledger/commands';

/** `exists`: the same command was applied before, and nothing was changed. */
export type Outcome = 'created' | 'exists';

/**
 * One command by itself, for callers that have a transaction of their own. Throws a ServiceError with the refusal as
 * its reason. UNAVAILABLE means that the outcome is unknown: call again with the same id.
 */
async function applyOne(db: Queryable, command: Command): Promise<Outcome> {
  const result = (await applyCommands(db, [[command]]))[0]![0]!;
  if (result.outcome === 'refused')
    throw new ServiceError('FAILED_PRECONDITION', result.reason, 'The command is refused');
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
