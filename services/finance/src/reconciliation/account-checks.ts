import { databaseTime } from '@granary/shared/postgres/clock';
import { execute, rows, type Pool } from '@granary/shared/postgres/pool';
import { sql, type Sql } from '@granary/shared/postgres/sql';
import type { Account } from '../ledger/accounts';
import { deriveBalances, noEntries, type Derivation, type DerivedBalance } from '../ledger/derived-balances';
import type { Difference } from './differences';

/** Accounts that one statement checks. */
const pageMax = 100;
/**
 * Accounts that are checked in each run although their counters have not changed, those first that were not for
 * longest.
 */
const unchangedMax = 1_000;

const counterNames = {
  debitsPending: 'debits_pending',
  debitsPosted: 'debits_posted',
  creditsPending: 'credits_pending',
  creditsPosted: 'credits_posted',
  payoutsPending: 'payouts_pending',
  payoutsPosted: 'payouts_posted',
} as const satisfies Record<keyof Account, string>;
const counters = Object.keys(counterNames) as Array<keyof Account>;

export interface AccountsChecked {
  accounts: number;
  differences: Difference[];
}

/**
 * Compares the counters of accounts with the sums of their entries, continuing from the sums of their last check: the
 * accounts whose counters have changed since then, and some of the others.
 */
export async function checkChangedAccounts(pool: Pool, stopping?: AbortSignal): Promise<AccountsChecked> {
  const all: AccountsChecked = { accounts: 0, differences: [] };
  const check = async (states: DerivedBalance[]) => add(all, await checkPage(pool, states, { keep: true, stopping }));
  for (let after = ''; ;) {
    if (stopping?.aborted) return all;
    const changed = await loadStates(pool, sql`where a.id > ${after} and ${isChanged} order by a.id limit ${pageMax}`);
    await check(changed);
    if (changed.length < pageMax) break;
    after = changed.at(-1)!.id;
  }
  const begun = await databaseTime(pool);
  for (let checked = 0; checked < unchangedMax && !stopping?.aborted; checked += pageMax) {
    const oldest = await loadStates(
      pool,
      sql`where c.checked_at < ${begun} and not ${isChanged} order by c.checked_at limit ${pageMax}`,
    );
    await check(oldest);
    if (oldest.length < pageMax) break;
  }
  return all;
}

/** Compares the counters of all accounts with the sums of all their entries, in the order of the accounts. */
export async function checkAllAccounts(
  pool: Pool,
  { keep, stopping }: { keep: boolean; stopping?: AbortSignal | undefined },
  progress: (checked: AccountsChecked) => void = () => undefined,
): Promise<AccountsChecked> {
  const all: AccountsChecked = { accounts: 0, differences: [] };
  for (let after = ''; !stopping?.aborted;) {
    const ids = await rows<{ id: string }>(
      pool,
      sql`select id from account where id > ${after} order by id limit ${pageMax}`,
    );
    const page = await checkPage(
      pool,
      ids.map(({ id }) => noEntries(id)),
      { keep, stopping },
    );
    add(all, page);
    progress(page);
    if (ids.length < pageMax) break;
    after = ids.at(-1)!.id;
  }
  return all;
}

function add(all: AccountsChecked, page: AccountsChecked): void {
  all.accounts += page.accounts;
  all.differences.push(...page.differences);
}

const isChanged = sql`(c.account_id is null
  or (a.debits_pending, a.debits_posted, a.credits_pending, a.credits_posted, a.payouts_pending, a.payouts_posted)
    is distinct from (c.debits_pending, c.debits_posted, c.credits_pending, c.credits_posted, c.payouts_pending, c.payouts_posted))`;

/** The sums of accounts as of their last check; 0 for an account that was never checked. */
function loadStates(pool: Pool, which: Sql): Promise<DerivedBalance[]> {
  return rows<DerivedBalance>(
    pool,
    sql`select a.id, coalesce(c.number, 0) as number, coalesce(c.debits_pending, 0) as "debitsPending",
          coalesce(c.debits_posted, 0) as "debitsPosted", coalesce(c.credits_pending, 0) as "creditsPending",
          coalesce(c.credits_posted, 0) as "creditsPosted", coalesce(c.payouts_pending, 0) as "payoutsPending",
          coalesce(c.payouts_posted, 0) as "payoutsPosted"
        from account a left join account_check c on c.account_id = a.id ${which}`,
  );
}

/** Derives accounts until all of their entries are added. With `keep` the sums are stored for the next check. */
async function checkPage(
  pool: Pool,
  states: readonly DerivedBalance[],
  { keep, stopping }: { keep: boolean; stopping?: AbortSignal | undefined },
): Promise<AccountsChecked> {
  const differences: Difference[] = [];
  let left = states;
  while (left.length > 0 && !stopping?.aborted) {
    const derivations = await deriveBalances(pool, left);
    if (keep) await store(pool, derivations);
    for (const derivation of derivations) differences.push(...differencesOf(derivation));
    left = derivations.filter(({ counters: found }) => !found).map(({ derived }) => derived);
  }
  return { accounts: states.length, differences };
}

function differencesOf({ derived, counters: actual }: Derivation): Difference[] {
  if (!actual) return [];
  return counters
    .filter((name) => derived[name] !== actual[name])
    .map((name) => ({
      kind: 'counter',
      subject: `${derived.id} ${counterNames[name]}`,
      expected: derived[name],
      found: actual[name],
    }));
}

async function store(pool: Pool, derivations: readonly Derivation[]): Promise<void> {
  const column = (of: keyof Account | 'number') =>
    sql`${derivations.map(({ derived }) => derived[of].toString())}::bigint[]`;
  await execute(
    pool,
    sql`insert into account_check as c (account_id, number, debits_pending, debits_posted, credits_pending, credits_posted,
          payouts_pending, payouts_posted, checked_at)
        select *, now() from unnest(${derivations.map(({ derived }) => derived.id)}::text[], ${column('number')},
          ${column('debitsPending')}, ${column('debitsPosted')}, ${column('creditsPending')}, ${column('creditsPosted')},
          ${column('payoutsPending')}, ${column('payoutsPosted')})
        on conflict (account_id) do update set number = excluded.number, debits_pending = excluded.debits_pending,
          debits_posted = excluded.debits_posted, credits_pending = excluded.credits_pending,
          credits_posted = excluded.credits_posted, payouts_pending = excluded.payouts_pending,
          payouts_posted = excluded.payouts_posted, checked_at = excluded.checked_at`,
  );
}
