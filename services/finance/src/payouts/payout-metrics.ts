import { row, type Pool } from '@granary/shared/postgres/pool';
import { sql } from '@granary/shared/postgres/sql';
import { addSource } from '@granary/shared/telemetry/metrics';
import { countStoppedAutoPayouts } from './auto-stops';

interface PayoutFigures {
  waiting: bigint;
  inFlight: bigint;
  held: bigint;
  oldestAgeSeconds: number;
  stopped: bigint;
  missing: bigint;
}

/** One statement over partial indexes of what is not final. */
async function readFigures(db: Pool): Promise<PayoutFigures> {
  const figures = await row<PayoutFigures>(
    db,
    sql`select open.*, sender.* from (
          select count(*) filter (where p.transaction_number is null) as waiting,
                 count(*) filter (where o.state in ('signed', 'broadcast')) as "inFlight",
                 count(*) filter (where o.state = 'held') as held,
                 coalesce(extract(epoch from now() - min(p.created_at)), 0)::float8 as "oldestAgeSeconds"
          from payout p left join outgoing_transaction o on o.number = p.transaction_number
          where p.status in ('pending', 'broadcast') and p.hold_id is not null
        ) open, (
          select count(stopped_because) as stopped, coalesce(max(missing_utia), 0) as missing from chain_sender
          where stopped_because is not null or missing_utia is not null
        ) sender`,
  );
  return figures!;
}

/** Shows at each scrape how payouts are; returns how to end that. */
export function observePayouts(pool: Pool): () => void {
  const gauge = (name: string, help: string, labels: string[] = []) => ({
    name,
    help,
    labels,
    type: 'gauge' as const,
  });
  return addSource({
    families: [
      gauge(
        'granary_payouts',
        'Payouts that are not final: waiting for a transaction, in one that is in flight, or in one that is held for a person.',
        ['state'],
      ),
      gauge('granary_payout_oldest_age_seconds', 'Age of the oldest payout that is not final, 0 if there is none.'),
      gauge('granary_payout_senders_stopped', 'Addresses that sign nothing until a person resumes them.'),
      gauge(
        'granary_auto_payouts_stopped',
        'Applications whose automatic payouts have stopped, because the chain refused the latest ones to their destination.',
      ),
      gauge('granary_hot_wallet_missing_utia', 'What the hot wallet lacks for the next payout.'),
    ],
    collect: async () => {
      const { waiting, inFlight, held, oldestAgeSeconds, stopped, missing } = await readFigures(pool);
      return {
        granary_payouts: [
          [['waiting'], Number(waiting)],
          [['in_flight'], Number(inFlight)],
          [['held'], Number(held)],
        ],
        granary_payout_oldest_age_seconds: [[[], oldestAgeSeconds]],
        granary_payout_senders_stopped: [[[], Number(stopped)]],
        granary_auto_payouts_stopped: [[[], Number(await countStoppedAutoPayouts(pool))]],
        granary_hot_wallet_missing_utia: [[[], Number(missing)]],
      };
    },
  });
}
