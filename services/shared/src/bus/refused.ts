import type { Event } from '../gen/granary/events/v1/Event';
import type { Logger } from '../logger';
import { execute, type Pool } from '../postgres/pool';
import { sql } from '../postgres/sql';
import { counters } from '../telemetry/metrics';

/** A message without a valid signature of its publisher. */
export interface RefusedEvent {
  /** Topic, partition and offset, or the position in the outbox. Unique per consumer. */
  source: string;
  why: 'no event' | 'not signed by its publisher';
  /** Its headers or fields, which are not verified. */
  about: Readonly<Record<string, string>>;
  payload: Buffer;
}

const refusals = counters({
  name: 'granary_events_refused_total',
  help: 'Messages refused because they are not signed by the publisher of their topic.',
  labels: ['consumer', 'why'],
});

/** Rows that are kept per consumer; further messages are only counted and logged: one sender can send many. */
const rowsMax = 1_000;
const payloadBytesMax = 4_096;
const aboutLengthMax = 4_096;

/**
 * Records messages that were refused, for an operator to examine. They have no other effect: no event waits behind
 * them, no sequence number changes, and the genuine event, if there is one, is read from the outbox.
 */
export async function recordRefused(
  pool: Pool,
  log: Logger,
  consumer: string,
  refused: readonly RefusedEvent[],
): Promise<void> {
  if (refused.length === 0) return;
  await execute(
    pool,
    sql`insert into refused_event (consumer, source, why, about, payload)
      select ${consumer}, source, why, about, payload
      from unnest(${refused.map(({ source }) => source)}::text[], ${refused.map(({ why }) => why)}::text[],
        ${refused.map(({ about }) => textOf(about))}::text[],
        ${refused.map(({ payload }) => payload.subarray(0, payloadBytesMax))}::bytea[]) as refused (source, why, about, payload)
      where (select count(*) from refused_event where consumer = ${consumer}) < ${rowsMax}
      on conflict do nothing`,
  );
  for (const { why } of refused) refusals.with(consumer, why).inc();
  const [first] = refused;
  log.error(
    { consumer, source: first!.source, why: first!.why, count: refused.length },
    'messages without a valid signature of their publisher were refused',
  );
}

/** An event of an outbox that its publisher has not signed. */
export function toRefused(event: Event): RefusedEvent {
  const { payload, position, signatures: _, ...about } = event;
  const { epoch, xid, pos } = position!;
  return { source: `outbox ${epoch}/${xid}/${pos}`, why: 'not signed by its publisher', about, payload };
}

const textOf = (about: RefusedEvent['about']): string =>
  JSON.stringify(about).replaceAll('\\u0000', '').slice(0, aboutLengthMax);
