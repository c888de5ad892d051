import { setTimeout as delay } from 'node:timers/promises';
import { rows, type Connection, type Pool, type Queryable } from '@granary/shared/postgres/pool';
import { sql } from '@granary/shared/postgres/sql';
import { transaction } from '@granary/shared/postgres/transaction';
import type { Difference } from './differences';

/** A statement that adds many entries takes longer than others. */
const checkTimeoutMs = 300_000;
/**
 * A payout and its hold may be changed one after the other: a difference counts that is still there after this long.
 */
const recheckAfterMs = 2_000;

/** Everything but the counters of single accounts; with `entries` also what has to read all entries. */
export function checkSums(pool: Pool, { entries }: { entries: boolean }): Promise<Difference[]> {
  return transaction(
    pool,
    async (tx) => [
      ...(await checkUnits(tx)),
      ...(await checkHolds(tx)),
      ...(await checkPayoutsTwice(tx)),
      ...(entries ? await checkEntries(tx) : []),
    ],
    { readOnly: true, statementTimeoutMs: checkTimeoutMs },
  );
}

async function checkPayoutsTwice(tx: Connection): Promise<Difference[]> {
  const first = await checkPayouts(tx);
  if (first.length === 0) return first;
  await delay(recheckAfterMs);
  const seen = new Map(first.map((each) => [each.subject, each]));
  return (await checkPayouts(tx)).filter(({ subject, expected, found }) => {
    const before = seen.get(subject);
    return before?.expected === expected && before.found === found;
  });
}

interface Compared {
  subject: string;
  expected: string;
  found: string;
}

const toDifference =
  (kind: Difference['kind']) =>
  ({ subject, expected, found }: Compared): Difference => ({
    kind,
    subject,
    expected: BigInt(expected),
    found: BigInt(found),
  });

/** In each unit, all accounts together have been debited what they have been credited. */
async function checkUnits(db: Queryable): Promise<Difference[]> {
  const mismatches = await rows<Compared>(
    db,
    sql`select unit || ' ' || phase as subject, sum(debits)::text as expected, sum(credits)::text as found
        from account cross join lateral (values
          ('pending', debits_pending, credits_pending), ('posted', debits_posted, credits_posted)
        ) counter(phase, debits, credits)
        group by unit, phase having sum(debits) <> sum(credits) order by subject`,
  );
  return mismatches.map(toDifference('unit'));
}

/** Checks that the pending sums of each account are those of its open holds. */
async function checkHolds(db: Queryable): Promise<Difference[]> {
  const mismatches = await rows<Compared>(
    db,
    sql`with held as (
          select side.account, sum(side.debits) as debits, sum(side.credits) as credits
          from open_hold join transfer using (id)
          cross join lateral (values (debit_account, amount, 0), (credit_account, 0, amount)) side(account, debits, credits)
          group by side.account
        ), pending as (
          select id, debits_pending, credits_pending from account where debits_pending <> 0 or credits_pending <> 0
        )
        select coalesce(account, id) || ' ' || counter.name as subject, counter.expected::text, counter.found::text
        from held full join pending on pending.id = held.account
        cross join lateral (values
          ('debits_pending', coalesce(debits, 0), coalesce(debits_pending, 0)),
          ('credits_pending', coalesce(credits, 0), coalesce(credits_pending, 0))
        ) counter(name, expected, found)
        where counter.expected <> counter.found order by subject`,
  );
  return mismatches.map(toDifference('hold'));
}

/** Checks that the amount that each wallet has pending for payouts is the sum of its payouts under way. */
async function checkPayouts(db: Queryable): Promise<Difference[]> {
  const mismatches = await rows<Compared>(
    db,
    sql`with open_payouts as (
          select wallet.account_id as account, sum(payout.amount) as amount
          from payout join wallet using (app_id) where payout.status in ('pending', 'broadcast') group by wallet.account_id
        ), pending as (
          select id, payouts_pending from account where payouts_pending <> 0
        )
        select coalesce(account, id) as subject, coalesce(amount, 0)::text as expected, coalesce(payouts_pending, 0)::text as found
        from open_payouts full join pending on pending.id = open_payouts.account
        where coalesce(amount, 0) <> coalesce(payouts_pending, 0) order by subject`,
  );
  return mismatches.map(toDifference('payout'));
}

/** Every entry is of two accounts that exist. Reads all entries. */
async function checkEntries(db: Queryable): Promise<Difference[]> {
  const mismatches = await rows<Compared>(
    db,
    sql`select id::text as subject, '2' as expected, '0' as found from transfer
        where not exists (select from account where account.id = transfer.debit_account)
          or not exists (select from account where account.id = transfer.credit_account)
        order by id limit 100`,
  );
  return mismatches.map(toDifference('entry'));
}
