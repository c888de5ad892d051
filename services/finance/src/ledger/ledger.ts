import { conflict, invalid, notFound, ServiceError } from '@granary/shared/errors';
import { maxUtia } from '@granary/shared/money';
import { sqlState, violatedConstraint } from '@granary/shared/postgres/errors';
import { execute, row, type Queryable } from '@granary/shared/postgres/pool';
import { sql } from '@granary/shared/postgres/sql';

export const INSUFFICIENT_FUNDS = 'INSUFFICIENT_FUNDS';
export const ACCOUNT_NOT_FOUND = 'ACCOUNT_NOT_FOUND';
export const AMOUNT_OUT_OF_RANGE = 'AMOUNT_OUT_OF_RANGE';
export const TRANSFER_ID_TAKEN = 'TRANSFER_ID_TAKEN';
export const SAME_ACCOUNT = 'SAME_ACCOUNT';
export const HOLD_NOT_FOUND = 'HOLD_NOT_FOUND';
export const HOLD_ENDED = 'HOLD_ENDED';
export const HOLD_EXCEEDED = 'HOLD_EXCEEDED';

/** Money that moves from one account (debit) to another (credit). */
export interface Transfer {
  /** A UUID that the caller made, and repeats with until it has a definite answer. */
  id: string;
  debitAccount: string;
  creditAccount: string;
  amountUtia: bigint;
  /** Why it moves (`earning`, `payout`, …), lower-case; `payout` is counted apart. */
  kind: string;
  /** What it moves for: the id of a quote, of a payout. */
  ref: string;
}

/** `exists`: the same transfer was there already, and nothing was changed. */
export type Outcome = 'created' | 'exists';

/** The counters of an account, all utia; what was posted only ever grows. */
export interface Account {
  debitsPending: bigint;
  debitsPosted: bigint;
  creditsPending: bigint;
  creditsPosted: bigint;
  payoutsPosted: bigint;
}

/** Makes an account unless it is there. Only an account of the world outside (`mayOverdraw`) goes below zero. */
export async function openAccount(db: Queryable, id: string, options: { mayOverdraw: boolean }): Promise<void> {
  await execute(
    db,
    sql`insert into account (id, may_overdraw) values (${id}, ${options.mayOverdraw}) on conflict do nothing`,
  );
}

export async function readAccount(db: Queryable, id: string): Promise<Account> {
  const found = await row<Account>(
    db,
    sql`select debits_pending as "debitsPending", debits_posted as "debitsPosted",
               credits_pending as "creditsPending", credits_posted as "creditsPosted", payouts_posted as "payoutsPosted"
        from account where id = ${id}`,
  );
  if (!found) throw notFound(ACCOUNT_NOT_FOUND, 'There is no such account');
  return found;
}

/**
 * Moves money at once, in one round trip. Throws INSUFFICIENT_FUNDS, ACCOUNT_NOT_FOUND, AMOUNT_OUT_OF_RANGE, or
 * TRANSFER_ID_TAKEN when the id belongs to a transfer of other content. UNAVAILABLE means that the outcome is not
 * known: call again with the same id.
 */
export function postTransfer(db: Queryable, transfer: Transfer): Promise<Outcome> {
  return post(db, transfer, false);
}

/** Holds money back, to be ended by `postHold` or `voidHold`. Errors as `postTransfer`. */
export function holdTransfer(db: Queryable, transfer: Transfer): Promise<Outcome> {
  return post(db, transfer, true);
}

/**
 * Moves what is held, or a part of it (`amountUtia`), and sets the rest free. `id` is the id of this transfer,
 * `holdId` that of the hold. Throws HOLD_NOT_FOUND, HOLD_EXCEEDED, TRANSFER_ID_TAKEN, or HOLD_ENDED when another
 * transfer has ended the hold.
 */
export async function postHold(
  db: Queryable,
  resolution: { id: string; holdId: string; amountUtia?: bigint },
): Promise<Outcome> {
  const { id, holdId, amountUtia } = resolution;
  if (amountUtia !== undefined) assertAmount(amountUtia);
  return run(db, sql`select resolve_transfer(${id}, ${holdId}, 'post', ${amountUtia ?? null}) as outcome`);
}

/** Sets free all that is held. Errors as `postHold`. */
export function voidHold(db: Queryable, resolution: { id: string; holdId: string }): Promise<Outcome> {
  return run(db, sql`select resolve_transfer(${resolution.id}, ${resolution.holdId}, 'void', null) as outcome`);
}

async function post(db: Queryable, transfer: Transfer, pending: boolean): Promise<Outcome> {
  const { id, debitAccount, creditAccount, amountUtia, kind, ref } = transfer;
  assertAmount(amountUtia);
  if (debitAccount === creditAccount) throw invalid('A transfer is between two accounts', {}, SAME_ACCOUNT);
  return run(
    db,
    sql`select post_transfer(${id}, ${debitAccount}, ${creditAccount}, ${amountUtia}, ${pending}, ${kind}, ${ref}) as outcome`,
  );
}

function assertAmount(amountUtia: bigint): void {
  if (amountUtia < 1n || amountUtia > maxUtia)
    throw invalid('An amount is from 1 to 2^53-1 utia', {}, AMOUNT_OUT_OF_RANGE);
}

async function run(db: Queryable, statement: ReturnType<typeof sql>): Promise<Outcome> {
  try {
    return (await row<{ outcome: Outcome }>(db, statement))!.outcome;
  } catch (error) {
    throw translate(error);
  }
}

/** What the functions of the ledger raise, see their migration, in our terms. */
function translate(error: unknown): unknown {
  switch (sqlState(error)) {
    case 'GL001':
      return conflict(TRANSFER_ID_TAKEN, 'The id belongs to another transfer');
    case 'GL002':
      return notFound(HOLD_NOT_FOUND, 'There is no such hold');
    case 'GL003':
      return new ServiceError('FAILED_PRECONDITION', HOLD_ENDED, 'The hold has been ended already');
    case 'GL004':
      return new ServiceError('FAILED_PRECONDITION', HOLD_EXCEEDED, 'That is more than is held');
    default:
      return fromConstraint(error);
  }
}

function fromConstraint(error: unknown): unknown {
  switch (violatedConstraint(error)) {
    case 'account_covered':
      return new ServiceError('FAILED_PRECONDITION', INSUFFICIENT_FUNDS, 'The balance is too small');
    case 'account_in_range':
      return new ServiceError('FAILED_PRECONDITION', AMOUNT_OUT_OF_RANGE, 'The account cannot hold that much');
    case 'transfer_debit_account_fkey':
    case 'transfer_credit_account_fkey':
      return notFound(ACCOUNT_NOT_FOUND, 'There is no such account');
    case 'transfer_pkey':
      return conflict(TRANSFER_ID_TAKEN, 'The id belongs to another transfer');
    default:
      return error;
  }
}
