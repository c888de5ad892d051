import { sdkCodes, sdkCodespace } from '@granary/shared/money/cosmos/read-transaction';
import { execute, rows, type Connection } from '@granary/shared/postgres/pool';
import { sql, type Sql } from '@granary/shared/postgres/sql';
import type { Outcome } from '../chain/chain';
import type { Purpose } from '../outgoing/delivery';

/**
 * The deductions of a transaction of the broker, as its state changes. The ledger has the income of payments by
 * payments.
 */
export const deductionPurpose: Purpose = {
  broadcast: () => Promise.resolve(),

  held: () => Promise.resolve(),

  expired: (tx, { number }) => release(tx, number),

  included: async (tx, { number, hash }, outcome) => {
    const deductions = await rows<{ id: string }>(
      tx,
      sql`select id from grant_deduction where transaction_number = ${number} order by id for no key update`,
    );
    if (outcome.code === 0) await confirm(tx, number, hash);
    // One of them is at fault, which one is not known.
    else if (deductions.length > 1) await release(tx, number, sql`, is_single = true`);
    else await fail(tx, number, hash, reasonOf(outcome));
    return [];
  },
};

/** The reasons by codespace and code of the Cosmos SDK. The `authz` codes 2 and 6: no grant, and an expired grant. */
const reasons: Readonly<Record<string, string>> = {
  [`${sdkCodespace} ${sdkCodes.insufficientFunds}`]: 'insufficient_funds',
  [`${sdkCodespace} ${sdkCodes.unauthorized}`]: 'grant_revoked',
  'authz 2': 'grant_revoked',
  'authz 6': 'grant_expired',
};

const reasonOf = ({ code, codespace }: Outcome): string =>
  reasons[`${codespace} ${code}`] ?? 'invalid_transaction_state';

/** They wait for another transaction. */
async function release(tx: Connection, number: bigint, more: Sql = sql``): Promise<void> {
  await execute(
    tx,
    sql`update grant_deduction set transaction_number = null, updated_at = clock_timestamp()${more}
        where transaction_number = ${number}`,
  );
}

async function confirm(tx: Connection, number: bigint, hash: string): Promise<void> {
  await end(tx, number, hash, sql`state = 'confirmed'`, 'Completed');
}

/** Ends a deduction as failed, and gives its amount back to what is left of the grant. */
async function fail(tx: Connection, number: bigint, hash: string, reason: string): Promise<void> {
  await execute(
    tx,
    sql`update user_grant g set spent_utia = g.spent_utia - d.amount
        from grant_deduction d where d.transaction_number = ${number} and g.id = d.grant_id`,
  );
  await end(tx, number, hash, sql`state = 'failed', reason = ${reason}`, 'Failed');
}

/** Stores the end of deductions, and their rows in the histories of the user and the application. */
async function end(tx: Connection, number: bigint, hash: string, change: Sql, status: string): Promise<void> {
  await execute(
    tx,
    sql`with ended as (
          update grant_deduction d set ${change}, updated_at = clock_timestamp(),
            height = (select height from outgoing_transaction o where o.number = ${number})
          where d.transaction_number = ${number} returning d.*
        )
        insert into authz_transaction (transaction_hash, user_address, app_id, operation_type, collection, amount, status,
          block_height)
        select ${hash}, address, app_id, operation_type, collection, amount, ${status}, coalesce(height, 0) from ended order by id`,
  );
}
