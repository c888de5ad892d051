import type { Pool } from '@granary/shared/postgres/pool';
import { checkAllAccounts } from './account-checks';
import { resolveDifferences, storeDifferences, type Difference } from './differences';
import { checkSums } from './sum-checks';

/** After so many accounts the progress is shown again. */
const shownEvery = 10_000;

export interface Verification {
  accounts: number;
  differences: Difference[];
}

/**
 * Derives the balances of all accounts from all entries, a page of accounts after the other, and compares them with the
 * counters; then the sums as reconciliation does. It may run beside a service: what it compares is of one moment each.
 */
export async function verifyLedger(pool: Pool, say: (line: string) => void): Promise<Verification> {
  let accounts = 0;
  const checked = await checkAllAccounts(pool, { keep: false }, (page) => {
    const before = Math.floor(accounts / shownEvery);
    accounts += page.accounts;
    if (Math.floor(accounts / shownEvery) > before) say(`${accounts} accounts …`);
  });
  const sums = await checkSums(pool, { entries: true });
  return { accounts: checked.accounts, differences: [...checked.differences, ...sums] };
}

/**
 * Resolves the differences that reconciliation has stored, so that payouts are resumed, unless the verification found
 * some; those are stored. Returns how many were resolved.
 */
export async function resumePayouts(pool: Pool, { differences }: Verification): Promise<number> {
  await storeDifferences(pool, differences);
  return differences.length > 0 ? 0 : resolveDifferences(pool);
}
