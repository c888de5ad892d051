import { conflict, invalid, type FieldMessages } from '@granary/shared/errors';
import { row, type Queryable } from '@granary/shared/postgres/pool';
import { sql } from '@granary/shared/postgres/sql';
import { parseAddress } from '../wallets/address';
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

/** A change with the canonical address of its destination. Throws INVALID_ARGUMENT for one that is no address of this chain. */
export function checkChange(
  { addressPrefix: prefix }: Pick<Wallets, 'addressPrefix'>,
  change: PayoutSettingsChange,
): PayoutSettingsChange {
  if (change.payoutDestination === undefined) return change;
  const parsed = parseAddress(change.payoutDestination, prefix);
  if ('address' in parsed) return { ...change, payoutDestination: parsed.address };
  const fields: FieldMessages = { payout_destination: [parsed.problem] };
  throw invalid('The payout destination is not valid', fields);
}
