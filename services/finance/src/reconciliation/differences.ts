import { execute, rows, type Queryable } from '@granary/shared/postgres/pool';
import { sql } from '@granary/shared/postgres/sql';

/**
 * `counter`: a counter of an account and its entries; `unit`: the debits and credits of all accounts of a unit; `hold`:
 * a counter of an account and the open holds; `payout`: what is held for payouts and the payouts that are under way;
 * `entry`: an entry of an account that does not exist; `deposit`: a transfer to a wallet on the chain and the deposit
 * that is stored; `outgoing`: what a transaction of ours was signed for and what it moved on the chain; `deduction`:
 * what is stored as deducted by a transaction of the broker from a wallet, and what that moved on the chain.
 */
export const differenceKinds = [
  'counter',
  'unit',
  'hold',
  'payout',
  'entry',
  'deposit',
  'outgoing',
  'deduction',
] as const;
export type DifferenceKind = (typeof differenceKinds)[number];

/** Two figures that ought to be equal and are not. */
export interface Difference {
  kind: DifferenceKind;
  subject: string;
  expected: bigint;
  found: bigint;
}

/** Stores differences that are not open yet, and returns those. Until they are resolved, payouts are paused. */
export async function storeDifferences(db: Queryable, differences: readonly Difference[]): Promise<Difference[]> {
  if (differences.length === 0) return [];
  const stored = await rows<{ kind: string; subject: string }>(
    db,
    sql`insert into difference (kind, subject, expected, found)
        select * from unnest(${differences.map(({ kind }) => kind)}::text[], ${differences.map(({ subject }) => subject)}::text[],
          ${differences.map(({ expected }) => expected.toString())}::text[],
          ${differences.map(({ found }) => found.toString())}::text[])
        on conflict do nothing returning kind, subject`,
  );
  const isNew = new Set(stored.map(({ kind, subject }) => `${kind} ${subject}`));
  return differences.filter(({ kind, subject }) => isNew.has(`${kind} ${subject}`));
}

/** How many differences are open, by kind. */
export async function countDifferences(db: Queryable): Promise<Map<DifferenceKind, number>> {
  const counts = await rows<{ kind: DifferenceKind; count: bigint }>(
    db,
    sql`select kind, count(*) from difference where resolved_at is null group by kind`,
  );
  return new Map(counts.map(({ kind, count }) => [kind, Number(count)]));
}

/** Resolves all open differences, so that payouts are resumed. Returns how many there were. */
export function resolveDifferences(db: Queryable): Promise<number> {
  return execute(db, sql`update difference set resolved_at = now() where resolved_at is null`);
}
