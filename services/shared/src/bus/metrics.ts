import { rows, type Pool } from '../postgres/pool';
import { sql } from '../postgres/sql';
import { addSource, histograms, type Histogram } from '../telemetry/metrics';

const delays = histograms(
  {
    name: 'granary_bus_event_delay_seconds',
    help: 'Age of events when a consumer applied them; each retry counts.',
    labels: ['consumer', 'topic'],
  },
  [0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 3_600],
);
const delaysByConsumer = new Map<string, Map<string, Histogram>>();

/** Records the delay of an event that a consumer has applied; `time` is that of the event, in ISO 8601. */
export function observeDelay(consumer: string, topic: string, time: string): void {
  let ofConsumer = delaysByConsumer.get(consumer);
  if (!ofConsumer) delaysByConsumer.set(consumer, (ofConsumer = new Map<string, Histogram>()));
  let delay = ofConsumer.get(topic);
  if (!delay) ofConsumer.set(topic, (delay = delays.with(consumer, topic)));
  delay.observe(Math.max(0, Date.now() - Date.parse(time)) / 1_000);
}

/** Larger backlogs are reported as this number, which bounds the cost of counting. */
const countMax = 10_000;

interface ReaderRow {
  consumer: string;
  events: bigint;
  oldest: Date | null;
}

/** Reports the outbox and the dead letters of a service at scrapes until the returned function is called. */
export function observeBus(service: string, pool: Pool): () => void {
  return addSource({
    families: [
      {
        name: 'granary_outbox_pending_events',
        help: `Events of a service that a reader of its outbox has not read yet, counted up to ${countMax}.`,
        labels: ['service', 'reader'],
        type: 'gauge',
      },
      {
        name: 'granary_outbox_pending_age_seconds',
        help: 'Age of the oldest pending event, 0 if there is none.',
        labels: ['service', 'reader'],
        type: 'gauge',
      },
      {
        name: 'granary_outbox_bytes',
        help: 'Size of the outbox with its indexes.',
        labels: ['service'],
        type: 'gauge',
      },
      {
        name: 'granary_bus_dead_letters',
        help: 'Dead-lettered events of a consumer: failed ones and later ones of their keys.',
        labels: ['service', 'consumer'],
        type: 'gauge',
      },
    ],
    collect: async () => {
      const [readers, [size], deadLetters] = await Promise.all([
        pendingByReader(pool),
        rows<{ bytes: bigint }>(pool, sql`select pg_total_relation_size('outbox') as bytes`),
        rows<{ consumer: string; count: bigint }>(
          pool,
          sql`select c.consumer, (select count(*) from dead_letter d where d.consumer = c.consumer) as count
              from bus_cursor c`,
        ),
      ]);
      const ageOf = ({ oldest }: ReaderRow) => (oldest ? Math.max(0, (Date.now() - oldest.getTime()) / 1_000) : 0);
      return {
        granary_outbox_pending_events: readers.map((each) => [[service, each.consumer], Number(each.events)]),
        granary_outbox_pending_age_seconds: readers.map((each) => [[service, each.consumer], ageOf(each)]),
        granary_outbox_bytes: [[[service], Number(size?.bytes ?? 0n)]],
        granary_bus_dead_letters: deadLetters.map((each) => [[service, each.consumer], Number(each.count)]),
      };
    },
  });
}

function pendingByReader(pool: Pool): Promise<ReaderRow[]> {
  return rows<ReaderRow>(
    pool,
    sql`select reader.consumer, pending.events, pending.oldest
        from outbox_reader reader, lateral (
          select count(*) as events, min(at) as oldest from (
            select at from outbox where (xid, pos) > (reader.xid, reader.pos) order by xid, pos limit ${countMax}
          ) waiting) pending`,
  );
}
