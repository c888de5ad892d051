import { sdkCodes } from '@granary/shared/money/cosmos/read-transaction';
import type { Output, Transfer } from '@granary/shared/money/cosmos/transaction';
import { execute, row, type Connection, type Queryable } from '@granary/shared/postgres/pool';
import { sql } from '@granary/shared/postgres/sql';
import { gasUsed } from './settings';

/** A granter's permission for a grantee to send the granter's money (SendAuthorization). */
export interface SimulatedGrant {
  spendLimit: bigint;
  expiresAt: Date;
}

/** Replaces a grant; undefined ends it. */
export async function setGrant(
  tx: Connection,
  grant: SimulatedGrant | undefined,
  granter: string,
  grantee: string,
): Promise<void> {
  await execute(
    tx,
    grant
      ? sql`insert into simulated_grant (granter, grantee, spend_limit, expires_at)
            values (${granter}, ${grantee}, ${grant.spendLimit}, ${grant.expiresAt})
            on conflict (granter, grantee) do update set spend_limit = excluded.spend_limit, expires_at = excluded.expires_at`
      : sql`delete from simulated_grant where granter = ${granter} and grantee = ${grantee}`,
  );
}

/** The amount that is left of a grant; 0 if there is none or it has ended. */
export async function findAllowance(db: Queryable, granter: string, grantee: string): Promise<bigint> {
  const grant = await row<{ spendLimit: bigint }>(
    db,
    sql`select spend_limit as "spendLimit" from simulated_grant
        where granter = ${granter} and grantee = ${grantee} and expires_at > clock_timestamp()`,
  );
  return grant?.spendLimit ?? 0n;
}

/**
 * Takes what a MsgExec sends from its granters and their grants, all or nothing. Returns the code of the transaction.
 */
export async function spendGrants(
  tx: Connection,
  { sender, outputs, fee, at: time }: Pick<Transfer, 'sender' | 'outputs' | 'fee'> & { at: Date },
): Promise<number> {
  if (fee.gas < gasUsed(outputs.length, true)) return sdkCodes.outOfGas;
  const amounts = byGranter(outputs);
  for (const [granter, amount] of amounts) {
    const checks = await row<{ isGranted: boolean; isFunded: boolean }>(
      tx,
      sql`select exists (select from simulated_grant where granter = ${granter} and grantee = ${sender}
                           and spend_limit >= ${amount} and expires_at > ${time}) as "isGranted",
                 exists (select from simulated_account where address = ${granter} and balance >= ${amount}) as "isFunded"`,
    );
    if (!checks!.isGranted) return sdkCodes.unauthorized;
    if (!checks!.isFunded) return sdkCodes.insufficientFunds;
  }
  for (const [granter, amount] of amounts) {
    await execute(
      tx,
      sql`update simulated_grant set spend_limit = spend_limit - ${amount} where granter = ${granter} and grantee = ${sender}`,
    );
    await execute(tx, sql`update simulated_account set balance = balance - ${amount} where address = ${granter}`);
  }
  return 0;
}

function byGranter(outputs: readonly Output[]): ReadonlyMap<string, bigint> {
  const amounts = new Map<string, bigint>();
  for (const { granter, amount } of outputs) amounts.set(granter!, (amounts.get(granter!) ?? 0n) + amount);
  return amounts;
}
