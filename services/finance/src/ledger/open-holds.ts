import { rows, type Queryable } from '@granary/shared/postgres/pool';
import { sql } from '@granary/shared/postgres/sql';

/** A hold that has not ended. */
export interface OpenHold {
  id: string;
  kind: string;
  amount: bigint;
  ref: string;
  expiresAt: Date;
}

interface OpenHoldsQuery {
  kinds: readonly string[];
  refPrefix: string;
  expireBy: Date;
  /** The expiry and the `ref` of the last hold that was read. */
  after: { expiresAt: Date; ref: string };
  limit: number;
}

/**
 * The open holds of some kinds that expire by a time and whose `ref` begins with a text, ordered by their expiry and
 * `ref`.
 */
export const listOpenHolds = (
  db: Queryable,
  { kinds, refPrefix, expireBy, after, limit }: OpenHoldsQuery,
): Promise<OpenHold[]> =>
  rows<OpenHold>(
    db,
    sql`select id, kind, amount, ref, open_hold.expires_at as "expiresAt" from open_hold join transfer using (id)
        where open_hold.expires_at between ${after.expiresAt} and ${expireBy}
          and (open_hold.expires_at, ref) > (${after.expiresAt}, ${after.ref})
          and starts_with(ref, ${refPrefix}) and kind = any(${kinds})
        order by open_hold.expires_at, ref, id limit ${limit}`,
  );
