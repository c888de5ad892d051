import { notFound } from '@granary/shared/errors';
import { execute, row, rows, type Queryable } from '@granary/shared/postgres/pool';
import { join, sql } from '@granary/shared/postgres/sql';

export const ACCOUNT_NOT_FOUND = 'ACCOUNT_NOT_FOUND';

/** The counters of an account, in its unit; what was posted only ever grows. */
export interface Account {
  debitsPending: bigint;
  debitsPosted: bigint;
  creditsPending: bigint;
  creditsPosted: bigint;
  /** The part of debitsPending that is held for payouts. */
  payoutsPending: bigint;
  /** The part of debitsPosted that was paid out. */
  payoutsPosted: bigint;
}

export interface NewAccount {
  id: string;
  /** `utia`, `allowance`, or the CAIP-19 name of an asset. Amounts move within a unit only. */
  unit: string;
  /** Only an account of the world outside has no balance that could be exceeded. */
  mayOverdraw: boolean;
}

/** Makes accounts unless they are there, in one statement. */
export async function openAccounts(db: Queryable, accounts: readonly NewAccount[]): Promise<void> {
  const values = accounts.map(({ id, unit, mayOverdraw }) => sql`(${id}, ${unit}, ${mayOverdraw}::boolean)`);
  await execute(
    db,
    sql`insert into account (id, unit, may_overdraw) values ${join(values, ', ')} on conflict do nothing`,
  );
}

const counters = sql`debits_pending as "debitsPending", debits_posted as "debitsPosted",
  credits_pending as "creditsPending", credits_posted as "creditsPosted",
  payouts_pending as "payoutsPending", payouts_posted as "payoutsPosted"`;

/** Throws ACCOUNT_NOT_FOUND. */
export async function readAccount(db: Queryable, id: string): Promise<Account> {
  const account = await row<Account>(db, sql`select ${counters} from account where id = ${id}`);
  if (!account) throw notFound(ACCOUNT_NOT_FOUND, 'There is no such account');
  return account;
}

export interface Balance extends Account {
  id: string;
  unit: string;
}

/** The accounts of those that exist, as of one moment, ordered by id. */
export function readBalances(db: Queryable, ids: readonly string[]): Promise<Balance[]> {
  return rows<Balance>(db, sql`select id, unit, ${counters} from account where id = any(${ids}) order by id`);
}
