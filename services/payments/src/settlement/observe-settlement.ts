import { degraded, healthy, type Finding } from '@granary/shared/health/check';
import { row, type Pool } from '@granary/shared/postgres/pool';
import { sql } from '@granary/shared/postgres/sql';
import { addSource } from '@granary/shared/telemetry/metrics';

/** When a payment is older than this, health reports that it is not settled or not credited. */
const lateAfterSeconds = 600;

interface SettlementFigures {
  unsettled: bigint;
  uncredited: bigint;
  unsettledAgeSeconds: number;
  uncreditedAgeSeconds: number;
}

/** One statement over partial indexes of what has not ended. */
async function readFigures(db: Pool): Promise<SettlementFigures> {
  const figures = await row<SettlementFigures>(
    db,
    sql`select unsettled.count as unsettled, unsettled.age as "unsettledAgeSeconds",
               uncredited.count as uncredited, uncredited.age as "uncreditedAgeSeconds"
        from (select count(*), coalesce(extract(epoch from clock_timestamp() - min(created_at)), 0)::float8 as age
              from claim
              where state in ('claimed', 'settling') and transaction_bytes is not null and failed_at is null) unsettled,
             (select count(*), coalesce(extract(epoch from clock_timestamp() - min(settled_at)), 0)::float8 as age
              from claim where credited_at is null and settled_at is not null and app_id is not null) uncredited`,
  );
  return figures!;
}

/**
 * Whether payments that were sent are settled, and those that are settled credited.
 *
 * @param stranded The payments on networks that are not configured, in words; empty: there are none.
 */
export async function checkSettlement(pool: Pool, stranded: () => Promise<string>): Promise<Finding> {
  const { unsettled, unsettledAgeSeconds, uncredited, uncreditedAgeSeconds } = await readFigures(pool);
  const problems: string[] = [];
  const elsewhere = await stranded();
  if (elsewhere !== '') problems.push(`payments on networks that are not configured are not settled: ${elsewhere}`);
  if (unsettledAgeSeconds > lateAfterSeconds) {
    problems.push(`payments that are not settled, the oldest for more than 10 minutes: ${unsettled}`);
  }
  if (uncreditedAgeSeconds > lateAfterSeconds) {
    problems.push(`settled payments that the ledger does not have, the oldest for more than 10 minutes: ${uncredited}`);
  }
  return problems.length === 0 ? healthy : degraded(problems.join('; '));
}

/** Shows at each scrape how settlements are; returns how to end that. */
export function observeSettlement(pool: Pool): () => void {
  return addSource({
    families: [
      {
        name: 'granary_settlements',
        help: 'x402 payments that were sent and are not settled, or are settled and not credited.',
        labels: ['state'],
        type: 'gauge',
      },
      {
        name: 'granary_settlement_oldest_age_seconds',
        help: 'Age of the oldest of them, 0 if there is none.',
        labels: ['state'],
        type: 'gauge',
      },
    ],
    collect: async () => {
      const { unsettled, unsettledAgeSeconds, uncredited, uncreditedAgeSeconds } = await readFigures(pool);
      return {
        granary_settlements: [
          [['unsettled'], Number(unsettled)],
          [['uncredited'], Number(uncredited)],
        ],
        granary_settlement_oldest_age_seconds: [
          [['unsettled'], unsettledAgeSeconds],
          [['uncredited'], uncreditedAgeSeconds],
        ],
      };
    },
  });
}
