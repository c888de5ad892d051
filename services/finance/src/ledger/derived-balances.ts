import { rows, type Queryable } from '@granary/shared/postgres/pool';
import { sql } from '@granary/shared/postgres/sql';
import type { Account } from './accounts';

/** The balance of an account, added up from its entries. */
export interface DerivedBalance extends Account {
  id: string;
  /** The entry up to which they are added; a later one has a higher number. */
  number: bigint;
}

export interface Derivation {
  derived: DerivedBalance;
  /** The counters of the account at the same moment; undefined where entries are left. */
  counters: Account | undefined;
}

/** Entries of an account, on each side of it, that one statement adds. */
const entriesMax = 10_000;

export const noEntries = (id: string): DerivedBalance => ({
  id,
  number: 0n,
  debitsPending: 0n,
  debitsPosted: 0n,
  creditsPending: 0n,
  creditsPosted: 0n,
  payoutsPending: 0n,
  payoutsPosted: 0n,
});

/**
 * Adds the entries after those that are in the sums, a bounded number for each account, and reads the counters of the
 * accounts in the same statement, so that both are of one moment whatever is being written. Entries are immutable, and
 * later ones have higher numbers, so the sums can be kept and continued. Accounts that do not exist are left out.
 */
export async function deriveBalances(db: Queryable, from: readonly DerivedBalance[]): Promise<Derivation[]> {
  const column = (of: (state: DerivedBalance) => bigint) => sql`${from.map((state) => of(state).toString())}::bigint[]`;
  const sumsRows = await rows<SumsRow>(
    db,
    sql`with state as (
          select s.id, s.number, a.debits_pending, a.debits_posted, a.credits_pending, a.credits_posted, a.payouts_pending,
            a.payouts_posted,
            least(
              (select t.number from transfer t where t.debit_account = s.id and t.number > s.number
               order by t.number offset ${entriesMax} limit 1),
              (select t.number from transfer t where t.credit_account = s.id and t.number > s.number
               order by t.number offset ${entriesMax} limit 1)) as below
          from unnest(${from.map(({ id }) => id)}::text[], ${column(({ number }) => number)}) s(id, number)
          join account a on a.id = s.id
        )
        select state.id, state.below is null as complete, greatest(state.number, debit.number, credit.number) as number,
          state.debits_pending as "debitsPending", state.debits_posted as "debitsPosted",
          state.credits_pending as "creditsPending", state.credits_posted as "creditsPosted",
          state.payouts_pending as "payoutsPending", state.payouts_posted as "payoutsPosted",
          debit.pending as "newDebitsPending", debit.posted as "newDebitsPosted",
          credit.pending as "newCreditsPending", credit.posted as "newCreditsPosted",
          debit.payouts_pending as "newPayoutsPending", debit.payouts_posted as "newPayoutsPosted"
        from state
        cross join lateral (${sumsOf('debit')}) debit
        cross join lateral (${sumsOf('credit')}) credit
        order by state.id`,
  );
  const states = new Map(from.map((state) => [state.id, state]));
  return sumsRows.map((sums) => continued(states.get(sums.id)!, sums));
}

/** Adds up the entries on one side of an account. The end of a hold takes the whole hold off the pending sum. */
function sumsOf(side: 'debit' | 'credit') {
  const account = side === 'debit' ? sql`t.debit_account` : sql`t.credit_account`;
  return sql`
    select max(number) as number, coalesce(sum(pending), 0)::text as pending, coalesce(sum(posted), 0)::text as posted,
      coalesce(sum(pending) filter (where kind = 'payout'), 0)::text as payouts_pending,
      coalesce(sum(posted) filter (where kind = 'payout'), 0)::text as payouts_posted
    from (
      select t.number, t.kind,
        case when t.phase = 'pending' then t.amount when t.phase in ('post', 'void') then -hold.amount else 0 end as pending,
        case when t.phase in ('posted', 'post') then t.amount else 0 end as posted
      from transfer t left join transfer hold on hold.id = t.pending_id
      where ${account} = state.id and t.number > state.number and (state.below is null or t.number < state.below)
    ) entry`;
}

interface SumsRow extends Account {
  id: string;
  complete: boolean;
  number: bigint;
  newDebitsPending: string;
  newDebitsPosted: string;
  newCreditsPending: string;
  newCreditsPosted: string;
  newPayoutsPending: string;
  newPayoutsPosted: string;
}

function continued(before: DerivedBalance, sums: SumsRow): Derivation {
  const { debitsPending, debitsPosted, creditsPending, creditsPosted, payoutsPending, payoutsPosted } = sums;
  const derived = {
    id: before.id,
    number: sums.number,
    debitsPending: before.debitsPending + BigInt(sums.newDebitsPending),
    debitsPosted: before.debitsPosted + BigInt(sums.newDebitsPosted),
    creditsPending: before.creditsPending + BigInt(sums.newCreditsPending),
    creditsPosted: before.creditsPosted + BigInt(sums.newCreditsPosted),
    payoutsPending: before.payoutsPending + BigInt(sums.newPayoutsPending),
    payoutsPosted: before.payoutsPosted + BigInt(sums.newPayoutsPosted),
  };
  const counters = { debitsPending, debitsPosted, creditsPending, creditsPosted, payoutsPending, payoutsPosted };
  return { derived, counters: sums.complete ? counters : undefined };
}
