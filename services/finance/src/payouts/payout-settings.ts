import { conflict, invalid } from '@granary/shared/errors';
import { row, type Queryable } from '@granary/shared/postgres/pool';
import { sql } from '@granary/shared/postgres/sql';
import { addressOf, addressProblem } from '@granary/shared/money/cosmos/address';
import type { PayoutSettings, Wallets } from '../wallets/wallet';

export const LOCKED_BALANCE_DECREASE = 'LOCKED_BALANCE_DECREASE';

/** A field that is absent stays as it is. */
export type PayoutSettingsChange = { [Field in keyof PayoutSettings]?: NonNullable<PayoutSettings[Field]> };

/** Changes settings of a wallet that exists, all of them or none. Throws LOCKED_BALANCE_DECREASE. */
export async function updatePayoutSettings(
  tx: Queryable,
  appId: string,
  { autoPayoutEnabled, lockedBalance, minPayout, payoutThreshold, payoutDestination }: PayoutSettingsChange,
): Promise<PayoutSettings> {
  // One statement: a concurrent change waits for the row and is decided against its new values.
  const after = await row<PayoutSettings>(
    tx,
    sql`update wallet set
          auto_payout_enabled = coalesce(${autoPayoutEnabled ?? null}::boolean, auto_payout_enabled),
          locked_balance = coalesce(${lockedBalance ?? null}::bigint, locked_balance),
          min_payout = coalesce(${minPayout ?? null}::bigint, min_payout),
          payout_threshold = coalesce(${payoutThreshold ?? null}::bigint, payout_threshold),
          payout_destination = coalesce(${payoutDestination ?? null}::text, payout_destination),
          auto_payout_stopped = auto_payout_stopped
            and payout_destination = coalesce(${payoutDestination ?? null}::text, payout_destination),
          updated_at = clock_timestamp()
        where app_id = ${appId} and locked_balance <= coalesce(${lockedBalance ?? null}::bigint, locked_balance)
        returning auto_payout_enabled as "autoPayoutEnabled", locked_balance as "lockedBalance",
                  min_payout as "minPayout", payout_threshold as "payoutThreshold",
                  payout_destination as "payoutDestination"`,
  );
  if (after) return after;
  throw conflict(LOCKED_BALANCE_DECREASE, 'The locked balance can only be increased', {
    locked_balance: ['must not be lower than it is'],
  });
}

/**
 * Throws VALIDATION_FAILED for a destination that is no address of this chain, or a wallet of this platform: the money
 * would come back, at the platform's cost. `field` is its name in the request.
 */
export async function checkDestination(
  { pool, keys, addressPrefix: prefix }: Wallets,
  destination: string | undefined,
  field: string,
): Promise<void> {
  if (destination === undefined) return;
  const problem = addressProblem(destination, prefix);
  if (problem !== undefined) throw invalidDestination(field, problem);
  const isHotWallet = destination === addressOf(await keys.publicKey('hot'), prefix);
  if (isHotWallet || (await row(pool, sql`select from wallet where address = ${destination}`))) {
    throw invalidDestination(field, 'is the address of a wallet of this platform');
  }
}

const invalidDestination = (field: string, problem: string) =>
  invalid('The payout destination is not valid', { [field]: [problem] });
