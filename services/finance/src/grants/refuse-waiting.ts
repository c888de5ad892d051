import { forEachConcurrently } from '@granary/shared/concurrency/for-each';
import { execute, rows, type Pool } from '@granary/shared/postgres/pool';
import { sql } from '@granary/shared/postgres/sql';
import { retriedTransaction } from '@granary/shared/postgres/transaction';
import type { ChainGrants } from '../chain/chain-grants';

/** A deduction that waits longer for a transaction is not taken any more: the request that it pays for is long over. */
const waitMaxMs = 600_000;
/** Deductions that one statement refuses. */
const refusedAtOnce = 500;

/** Wallets that the chain is asked about at a time: nodes limit how much they are asked. */
const lookedAtOnce = 4;

interface Waiting {
  id: string;
  amount: bigint;
  /** The wallet. */
  address: string;
  recipient: string;
}

interface Refused {
  id: string;
  reason: string;
}

/** Refuses the deductions that have waited too long. Returns how many. */
export async function refuseLate(pool: Pool): Promise<number> {
  const late = await rows<Refused>(
    pool,
    sql`select id, 'payment_expired' as reason from grant_deduction
        where state = 'pending' and transaction_number is null
          and created_at < clock_timestamp() - ${waitMaxMs} * interval '1 millisecond'
        limit ${refusedAtOnce}`,
  );
  return refuse(pool, late);
}

/**
 * Refuses those of the waiting deductions that the chain would refuse as things are: the transaction would fail with
 * all that share it, the broker would pay for it, and each would be repeated by itself. Returns how many.
 */
export async function refuseUncovered(
  { pool, grants }: { pool: Pool; grants: Pick<ChainGrants, 'allowance' | 'spendable'> },
  waiting: readonly Waiting[],
): Promise<number> {
  const balances = new Map<string, bigint>();
  await forEachConcurrently(lookedAtOnce, new Set(waiting.map(({ address }) => address)), async (address) => {
    balances.set(address, await grants.spendable(address));
  });
  // A grant may name to whom money is sent, and those that wait may have several recipients where X402_PAY_TO was
  // changed.
  const pairs = new Map(waiting.map((each) => [pairOf(each), each]));
  const allowances = new Map<string, bigint | undefined>();
  await forEachConcurrently(lookedAtOnce, pairs, async ([pair, { address, recipient }]) => {
    allowances.set(pair, await grants.allowance(address, recipient));
  });
  const taken = new Map<string, bigint>();
  const refused = waiting.flatMap((each): Refused[] => {
    const { id, amount, address } = each;
    const [allowance, before] = [allowances.get(pairOf(each)), taken.get(address) ?? 0n];
    if (allowance !== undefined && allowance < before + amount) {
      return [{ id, reason: allowance <= before ? 'grant_revoked' : 'allowance_spent' }];
    }
    if (balances.get(address)! < before + amount) return [{ id, reason: 'insufficient_funds' }];
    taken.set(address, before + amount);
    return [];
  });
  return refuse(pool, refused);
}

const pairOf = ({ address, recipient }: Waiting): string => `${address} ${recipient}`;

/** Another process may have signed one of them meanwhile: it goes on. What is not taken is left of the grant again. */
async function refuse(pool: Pool, refused: readonly Refused[]): Promise<number> {
  if (refused.length === 0) return 0;
  await retriedTransaction(pool, (tx) =>
    execute(
      tx,
      sql`with ended as (
            update grant_deduction d set state = 'failed', reason = refused.reason, updated_at = clock_timestamp()
            from unnest(${refused.map(({ id }) => id)}::uuid[], ${refused.map(({ reason }) => reason)}::text[])
              refused(id, reason)
            where d.id = refused.id and d.state = 'pending' and d.transaction_number is null
            returning d.grant_id, d.amount
          )
          update user_grant g set spent_utia = g.spent_utia - untaken.amount
          from (select grant_id, sum(amount)::bigint as amount from ended group by grant_id) untaken
          where g.id = untaken.grant_id`,
    ),
  );
  return refused.length;
}
