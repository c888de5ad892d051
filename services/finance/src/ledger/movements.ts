import { encodeCursor, parseCursor, type Listing } from '@granary/shared/postgres/listing';
import { rows, type Queryable } from '@granary/shared/postgres/pool';
import { sql } from '@granary/shared/postgres/sql';

/** An amount that has moved into or out of an account. */
export interface AccountMovement {
  /** Among those of one account, later ones have higher numbers. */
  number: bigint;
  id: string;
  /** At least 1. */
  amount: bigint;
  /** Whether it moved into the account. */
  isCredit: boolean;
  kind: string;
  ref: string;
  createdAt: Date;
}

/**
 * Transfers that one page reads, at most. Holds and their releases are among them and in no page, and an agent can make
 * any number of these, one after the other.
 */
const transfersMax = 5_000;
const beyondAllNumbers = 2n ** 63n - 1n;

/**
 * A page of what has moved into and out of an account, the newest first. It has fewer entries than `limit`, perhaps
 * none, where `transfersMax` transfers had no more: there are others as long as it has a cursor. What moves meanwhile
 * is newer than all that later pages have, so they repeat and skip nothing. Throws INVALID_CURSOR.
 */
export async function listMovements(
  db: Queryable,
  account: string,
  { limit, cursor }: { limit: number; cursor: string },
): Promise<Listing<AccountMovement>> {
  const before = cursor === '' ? beyondAllNumbers : BigInt(parseCursor(cursor, ['number'])[0] as string);
  const side = (isCredit: boolean) => sql`
    (select number, id, amount, ${isCredit}::boolean as "isCredit", kind, ref, created_at as "createdAt",
       phase in ('posted', 'post') and amount > 0 as "hasMoved"
     from transfer where ${isCredit ? sql`credit_account` : sql`debit_account`} = ${account} and number < ${before}
     order by number desc limit ${transfersMax})`;
  const found = await rows<AccountMovement & { hasMoved: boolean; place: bigint }>(
    db,
    sql`select * from (
          select *, row_number() over (order by number desc) as place
          from (${side(false)} union all ${side(true)}) entry) entry
        where place <= ${transfersMax} and ("hasMoved" or place = ${transfersMax})
        order by number desc limit ${limit + 1}`,
  );
  const page = found.slice(0, limit);
  const last = page.at(-1);
  const hasNext = last !== undefined && (found.length > limit || last.place === BigInt(transfersMax));
  return { entries: page.filter(({ hasMoved }) => hasMoved), nextCursor: hasNext ? encodeCursor([last.number]) : '' };
}
