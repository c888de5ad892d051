import { rows, type Queryable } from '@granary/shared/postgres/pool';
import { sql } from '@granary/shared/postgres/sql';

/** A transfer as it is stored. */
export interface Entry {
  /** Among the transfers of one account, later ones have higher numbers. Numbers have gaps. */
  number: bigint;
  id: string;
  debitAccount: string;
  creditAccount: string;
  amount: bigint;
  /** `posted`: moved at once; `pending`: a hold; `post` and `void`: its end. */
  phase: 'posted' | 'pending' | 'post' | 'void';
  kind: string;
  ref: string;
  /** The hold that it ended. */
  holdId: string | null;
  expiresAt: Date | null;
  createdAt: Date;
}

const columns = sql`number, id, debit_account as "debitAccount", credit_account as "creditAccount", amount, phase, kind, ref,
  pending_id as "holdId", expires_at as "expiresAt", created_at as "createdAt"`;

/**
 * The transfers of an account in the order of their commits, those with a number greater than `after`, at most `limit`.
 * A transfer that commits later never has a lower number, so `after` the last one read misses none.
 */
export function listEntries(
  db: Queryable,
  account: string,
  { after, limit }: { after: bigint; limit: number },
): Promise<Entry[]> {
  const part = (side: 'debit' | 'credit') => {
    const isIts = side === 'debit' ? sql`debit_account = ${account}` : sql`credit_account = ${account}`;
    return sql`(select ${columns} from transfer where ${isIts} and number > ${after} order by number limit ${limit})`;
  };
  return rows<Entry>(
    db,
    sql`select * from (${part('debit')} union all ${part('credit')}) entry order by number limit ${limit}`,
  );
}
