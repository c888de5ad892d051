import { execute, row, type Pool } from '@granary/shared/postgres/pool';
import { sql } from '@granary/shared/postgres/sql';
import { retriedTransaction } from '@granary/shared/postgres/transaction';

/** A deduction to be made under a grant. */
export interface NewDeduction {
  /** The id that the payment has chosen. Starting the same id again starts nothing. */
  id: string;
  grantId: string;
  appId: string;
  operationType: string;
  collection: string;
  amount: bigint;
  recipient: string;
}

/** Why nothing is taken under a grant. */
type DeductionRefusal = 'grant_revoked' | 'grant_expired' | 'target_not_allowed' | 'allowance_spent' | 'wallet_refused';

/**
 * After a deduction from a wallet has failed on the chain, no other one from it is taken for this long: each could fail
 * the transaction that it shares with others, and be repeated by itself, both at the cost of the broker.
 */
const cooldownMs = 3_600_000;

export interface Deduction {
  state: 'pending' | 'confirmed' | 'failed';
  /** The hash of its transaction, once it is signed. */
  hash: string | null;
  height: bigint | null;
  reason: string | null;
  updatedAt: Date;
}

interface AskedGrant {
  address: string;
  left: bigint;
  isRevoked: boolean;
  isExpired: boolean;
  isAllowed: boolean;
  isWalletRefused: boolean;
}

/**
 * Takes an amount off what is left of a grant, and queues its transfer. Repeatable. Undefined: it is queued, or was
 * taken; else why nothing is taken. A refusal is stored as a deduction that has failed, so that it is definite: a call
 * that was held up, and comes when more is left of the grant, takes nothing either.
 */
export async function startDeduction(pool: Pool, deduction: NewDeduction): Promise<string | undefined> {
  const { id, grantId, appId, operationType, collection, amount, recipient } = deduction;
  return retriedTransaction(pool, async (tx) => {
    const grant = await row<AskedGrant>(
      tx,
      sql`select address, limit_utia - spent_utia as left, revoked_at is not null as "isRevoked",
            expires_at <= clock_timestamp() as "isExpired",
            allowed_apps is null or ${appId} = any(allowed_apps) as "isAllowed",
            exists (select from grant_deduction d where d.address = user_grant.address and d.state = 'failed'
                      and d.transaction_number is not null
                      and d.updated_at > clock_timestamp() - ${cooldownMs} * interval '1 millisecond') as "isWalletRefused"
          from user_grant where id = ${grantId}::uuid for no key update`,
    );
    const existing = await row<{ isSame: boolean; failure: string | null }>(
      tx,
      sql`select grant_id = ${grantId}::uuid and app_id = ${appId} and amount = ${amount} and recipient = ${recipient} as "isSame",
            case when state = 'failed' then reason end as failure
          from grant_deduction where id = ${id}::uuid`,
    );
    // The id may be that of another deduction.
    if (existing) return existing.isSame ? (existing.failure ?? undefined) : 'deduction_taken';
    if (!grant) return 'grant_revoked';
    const refusal = refusalOf(grant, amount);
    if (refusal === undefined) {
      await execute(tx, sql`update user_grant set spent_utia = spent_utia + ${amount} where id = ${grantId}::uuid`);
    }
    await execute(
      tx,
      sql`insert into grant_deduction (id, grant_id, address, app_id, operation_type, collection, amount, recipient, state, reason,
            created_at, updated_at)
          values (${id}, ${grantId}, ${grant.address}, ${appId}, ${operationType}, ${collection}, ${amount}, ${recipient},
            ${refusal === undefined ? 'pending' : 'failed'}, ${refusal ?? null}, clock_timestamp(), clock_timestamp())`,
    );
    return refusal;
  });
}

function refusalOf(grant: AskedGrant, amount: bigint): DeductionRefusal | undefined {
  if (grant.isRevoked) return 'grant_revoked';
  if (grant.isExpired) return 'grant_expired';
  if (!grant.isAllowed) return 'target_not_allowed';
  if (grant.left < amount) return 'allowance_spent';
  return grant.isWalletRefused ? 'wallet_refused' : undefined;
}

/** Undefined for one that was never started. */
export const findDeduction = (db: Pool, id: string): Promise<Deduction | undefined> =>
  row<Deduction>(
    db,
    sql`select d.state, o.hash, d.height, d.reason, d.updated_at as "updatedAt"
        from grant_deduction d left join outgoing_transaction o on o.number = d.transaction_number
        where d.id = ${id}::uuid`,
  );
