import { conflict, type ServiceError } from '@granary/shared/errors';
import { rows, type Connection } from '@granary/shared/postgres/pool';
import { sql } from '@granary/shared/postgres/sql';

export const PAYOUT_DESTINATION_REFUSED = 'PAYOUT_DESTINATION_REFUSED';

/**
 * After the chain has refused a payout to an address, the application cannot trigger another one to it for this long.
 */
const cooldownMs = 3_600_000;

interface Target {
  appId: string;
  destination: string;
}

/** Names a destination of an application. */
export const targetKey = ({ appId, destination }: Target): string => `${appId}/${destination}`;

/**
 * The refusals by target key, each with the time until which no payout to the target is accepted: the chain has refused
 * a payout to it within `cooldownMs` and has paid none since. Each further attempt would fail the transaction that it
 * shares with other payouts and then be repeated alone, and the platform pays the fees of both.
 */
export async function findRefusedDestinations(
  tx: Connection,
  targets: readonly Target[],
): Promise<Map<string, ServiceError>> {
  if (targets.length === 0) return new Map();
  const refusals = await rows<Target & { until: Date }>(
    tx,
    sql`select target.app_id as "appId", target.destination, refused.at + ${cooldownMs} * interval '1 millisecond' as until
        from unnest(${targets.map(({ appId }) => appId)}::text[], ${targets.map(({ destination }) => destination)}::text[])
          target(app_id, destination)
        cross join lateral (
          select max(updated_at) as at from payout
          where app_id = target.app_id and destination = target.destination and status = 'failed'
            and updated_at > clock_timestamp() - ${cooldownMs} * interval '1 millisecond'
        ) refused
        where refused.at is not null and not exists (
          select from payout where app_id = target.app_id and destination = target.destination
            and status = 'confirmed' and updated_at > refused.at)`,
  );
  return new Map(refusals.map(({ until, ...target }) => [targetKey(target), refusal(until)]));
}

const refusal = (until: Date): ServiceError =>
  conflict(PAYOUT_DESTINATION_REFUSED, 'The chain has refused a payout to this address: give another one, or wait', {
    until: until.toISOString(),
  });
