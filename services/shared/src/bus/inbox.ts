import type { Event } from '../gen/granary/events/v1/Event';
import type { Position } from '../gen/granary/events/v1/Position';
import { execute, row, rows, type Connection } from '../postgres/pool';
import { join, sql } from '../postgres/sql';
import { observeDelay } from './metrics';
import { traced } from '../telemetry/trace';
import type { PartitionOffset } from '../kafka/client';
import { start } from './position';

/** An event as its handler sees it. */
export interface BusEvent {
  id: string;
  topic: string;
  key: string;
  aggregateId: string;
  aggregateSequence: bigint;
  type: string;
  payload: Record<string, unknown>;
  /** ISO 8601. */
  at: string;
}

/** Applies one event. All of its effects go through `tx`: they happen once, together with the progress of the consumer. */
export type Handle = (tx: Connection, event: BusEvent) => Promise<void>;

/** Thrown by a handler: this event is wrong and will never be right. It is put aside at once. */
export class PoisonEvent extends Error {
  override readonly name = 'PoisonEvent';
}

/** Before this event others of its aggregate are missing, those after `lastSequence`. */
export interface Gap {
  event: Event;
  lastSequence: bigint;
}

/** Some of the events cannot be applied yet. There is at least one gap. */
export class GapError extends Error {
  override readonly name = 'GapError';
  /** How many events are missing. */
  readonly size: number;
  constructor(readonly gaps: readonly Gap[]) {
    const { event, lastSequence } = gaps[0]!;
    super(
      `the events ${lastSequence + 1n} to ${BigInt(event.aggregateSequence) - 1n} of ${event.aggregateId} are missing`,
    );
    this.size = gaps.reduce((sum, gap) => sum + Number(BigInt(gap.event.aggregateSequence) - gap.lastSequence) - 1, 0);
  }
}

/** Another copy of the consumer is at work, or has been since the position was read. */
export class CursorConflict extends Error {
  override readonly name = 'CursorConflict';
}

/** Longer than any outbox keeps what everybody has read. */
const inboxRetentionMs = 14 * 86_400_000;

/** Where a consumer stands in its source. */
export async function loadCursor(tx: Pick<Connection, 'query'>, consumer: string): Promise<Position> {
  await execute(tx, sql`insert into bus_cursor (consumer) values (${consumer}) on conflict do nothing`);
  const found = await row<{ epoch: string; xid: string; pos: string }>(
    tx,
    sql`select epoch::text, xid::text, pos::text from bus_cursor where consumer = ${consumer}`,
  );
  return found ?? start;
}

/** In all that applies events of a consumer in parts (`shared`), or alone. */
const consumerLock = (consumer: string) => sql`hashtextextended(${`bus ${consumer}`}, 0)`;

/**
 * Locks the consumer's place and moves it. With `alone` nobody else applies events of the consumer until the end of the
 * transaction. Throws CursorConflict, without waiting for another copy, when it is not at `from`.
 */
export async function moveCursor(
  tx: Connection,
  consumer: string,
  from: Position,
  to: Position,
  alone: boolean,
): Promise<void> {
  const lock = alone ? sql`pg_advisory_xact_lock(${consumerLock(consumer)})` : sql`1`;
  const locked = await row(
    tx,
    sql`with here as materialized (
        select from bus_cursor where consumer = ${consumer} and epoch = ${from.epoch}::bigint
          and xid = ${from.xid}::xid8 and pos = ${from.pos}::bigint for update skip locked)
      select ${lock} from here`,
  );
  if (!locked) throw new CursorConflict('another copy is at work');
  if (from === to) return;
  await execute(
    tx,
    sql`update bus_cursor set epoch = ${to.epoch}::bigint, xid = ${to.xid}::xid8, pos = ${to.pos}::bigint, moved_at = now()
      where consumer = ${consumer}`,
  );
}

/** Holds the consumer still: until the end of the transaction nobody else applies events of it. */
export async function holdConsumer(tx: Connection, consumer: string): Promise<void> {
  // In the order of moveCursor.
  await execute(tx, sql`select from bus_cursor where consumer = ${consumer} for update`);
  await execute(tx, sql`select pg_advisory_xact_lock(${consumerLock(consumer)})`);
}

/** Where a consumer stands in partitions of Kafka. */
export async function loadOffsets(db: Pick<Connection, 'query'>, consumer: string): Promise<PartitionOffset[]> {
  return rows<PartitionOffset>(db, sql`select topic, partition, next from bus_offset where consumer = ${consumer}`);
}

/**
 * Locks the consumer's place in a partition and sets it, whatever it was: a topic that was made anew begins at 0.
 * Until the end of the transaction nobody else applies events of the partition; of others they may.
 */
export async function saveOffset(tx: Connection, consumer: string, place: PartitionOffset): Promise<void> {
  await execute(
    tx,
    sql`with held as materialized (select pg_advisory_xact_lock_shared(${consumerLock(consumer)}))
      insert into bus_offset (consumer, topic, partition, next)
      select ${consumer}, ${place.topic}, ${place.partition}::int, ${place.next}::bigint from held
      on conflict (consumer, topic, partition) do update set next = excluded.next, moved_at = now()`,
  );
}

const aggregateOf = (event: Pick<Event, 'topic' | 'aggregateId'>) => `${event.topic} ${event.aggregateId}`;

export function toBusEvent(event: Event): BusEvent {
  let payload: unknown;
  try {
    payload = JSON.parse(event.payload.toString());
  } catch (cause) {
    throw new PoisonEvent('the payload is not JSON', { cause });
  }
  if (typeof payload !== 'object' || payload === null) throw new PoisonEvent('the payload is not an object');
  const { id, topic, key, aggregateId, type, at } = event;
  const aggregateSequence = BigInt(event.aggregateSequence);
  return { id, topic, key, aggregateId, aggregateSequence, type, payload: payload as Record<string, unknown>, at };
}

/**
 * Events in the order in which they are applied: as they came, but within an aggregate by their numbers. A
 * transaction that began earlier may have waited for the aggregate longer.
 */
function inOrder(events: readonly Event[]): Event[] {
  const byAggregate = new Map<string, Event[]>();
  for (const event of events) {
    const name = aggregateOf(event);
    byAggregate.set(name, [...(byAggregate.get(name) ?? []), event]);
  }
  for (const list of byAggregate.values()) {
    list.sort((a, b) => Number(BigInt(b.aggregateSequence) - BigInt(a.aggregateSequence)));
  }
  return events.map((event) => byAggregate.get(aggregateOf(event))!.pop()!);
}

/** Of these events those that the consumer has not dealt with; from now on it has. */
async function enterInbox(tx: Connection, consumer: string, events: readonly Event[]): Promise<Event[]> {
  const entered = await rows<{ event_id: string }>(
    tx,
    sql`insert into inbox (consumer, event_id)
      select ${consumer}, event_id from unnest(${events.map((event) => event.id)}::uuid[]) event_id
      on conflict do nothing returning event_id`,
  );
  const ids = new Set(entered.map((each) => each.event_id));
  return events.filter((event) => ids.has(event.id));
}

/** Of these events those that the consumer has not dealt with. */
export async function notInInbox(
  db: Pick<Connection, 'query'>,
  consumer: string,
  events: readonly Event[],
): Promise<Event[]> {
  if (events.length === 0) return [];
  const found = await rows<{ event_id: string }>(
    db,
    sql`select event_id from inbox
      where consumer = ${consumer} and event_id = any(${events.map((event) => event.id)}::uuid[])`,
  );
  const ids = new Set(found.map((each) => each.event_id));
  return events.filter((event) => !ids.has(event.id));
}

/** The keys of these events that are parked, each with what its later events wait for. */
async function parkedKeys(tx: Connection, consumer: string, events: readonly Event[]): Promise<Map<string, string>> {
  const found = await rows<{ key: string; event_id: string; type: string; error: string | null }>(
    tx,
    sql`select distinct on (key) key, event_id, type, error from dead_letter
      where consumer = ${consumer} and key = any(${events.map((event) => event.key)}::text[]) order by key, number`,
  );
  return new Map(
    found.map(({ key, event_id, type, error }) => [key, `waits behind ${type} ${event_id}, which failed: ${error}`]),
  );
}

async function lastSequences(tx: Connection, consumer: string, events: readonly Event[]): Promise<Map<string, bigint>> {
  const found = await rows<{ topic: string; agg_id: string; last_seq: bigint }>(
    tx,
    sql`select topic, agg_id, last_seq from bus_aggregate where consumer = ${consumer} and (topic, agg_id) in (
      select * from unnest(${events.map((event) => event.topic)}::text[], ${events.map((event) => event.aggregateId)}::text[]))`,
  );
  return new Map(found.map((each) => [aggregateOf({ topic: each.topic, aggregateId: each.agg_id }), each.last_seq]));
}

export async function saveSequences(
  tx: Connection,
  consumer: string,
  applied: ReadonlyArray<Pick<Event, 'topic' | 'aggregateId' | 'aggregateSequence'>>,
): Promise<void> {
  if (applied.length === 0) return;
  // In one order everywhere, so that nobody waits in a circle.
  const events = [...applied].sort((a, b) => (aggregateOf(a) < aggregateOf(b) ? -1 : 1));
  const values = events.map(
    (event) => sql`(${consumer}, ${event.topic}, ${event.aggregateId}, ${event.aggregateSequence}::bigint)`,
  );
  await execute(
    tx,
    sql`insert into bus_aggregate (consumer, topic, agg_id, last_seq) values ${join(values, ', ')}
      on conflict (consumer, topic, agg_id)
      do update set last_seq = greatest(bus_aggregate.last_seq, excluded.last_seq)`,
  );
}

/** Where the numbers of these events do not follow on each other and on what was applied. */
function findGaps(events: readonly Event[], sequences: ReadonlyMap<string, bigint>): Gap[] {
  const reached = new Map(sequences);
  const gaps: Gap[] = [];
  for (const event of events) {
    const aggregate = aggregateOf(event);
    const lastSequence = reached.get(aggregate) ?? 0n;
    const sequence = BigInt(event.aggregateSequence);
    if (sequence > lastSequence + 1n) gaps.push({ event, lastSequence });
    if (sequence > lastSequence) reached.set(aggregate, sequence);
  }
  return gaps;
}

/**
 * Applies events in a transaction that holds the consumer's place: each once, in order, none that was dealt with
 * before, none of a parked key. Throws what the handler throws, and GapError; nothing of it then happens.
 */
export async function applyEvents(
  tx: Connection,
  consumer: string,
  events: readonly Event[],
  handle: Handle,
): Promise<void> {
  if (events.length === 0) return;
  const fresh = await enterInbox(tx, consumer, inOrder(events));
  if (fresh.length === 0) return;
  const parked = await parkedKeys(tx, consumer, fresh);
  for (const event of fresh) {
    const why = parked.get(event.key);
    if (why !== undefined) await deadLetter(tx, consumer, event, why, 0);
  }
  const ready = fresh.filter((event) => !parked.has(event.key));
  const sequences = await lastSequences(tx, consumer, ready);
  const gaps = findGaps(ready, sequences);
  if (gaps.length > 0) throw new GapError(gaps);
  const applied = new Map<string, Event>();
  for (const event of ready) {
    const aggregate = aggregateOf(event);
    if (BigInt(event.aggregateSequence) <= (sequences.get(aggregate) ?? 0n)) {
      // Applied so long ago that the inbox has forgotten it, or another event under a number that was used.
      if (await isForgotten(tx, event)) continue;
      throw new PoisonEvent(`the sequence number ${event.aggregateSequence} was used before, by another event`);
    }
    await applyTraced(tx, consumer, event, handle);
    sequences.set(aggregate, BigInt(event.aggregateSequence));
    applied.set(aggregate, event);
  }
  await saveSequences(tx, consumer, [...applied.values()]);
}

/** Whether an event is so old that its entry in the inbox may be gone, by the database's clock. */
async function isForgotten(tx: Connection, event: Event): Promise<boolean> {
  const found = await row<{ old: boolean }>(
    tx,
    sql`select ${event.at}::timestamptz < now() - ${inboxRetentionMs} * interval '1 millisecond' as old`,
  );
  return found!.old;
}

/** Applies one event, in a span of the trace that its publication belongs to. */
async function applyTraced(tx: Connection, consumer: string, event: Event, handle: Handle): Promise<void> {
  const { topic, at, trace } = event;
  const [service = consumer] = consumer.split('-');
  await traced({ service, name: `apply ${topic}`, kind: 'consumer' }, trace, async () => handle(tx, toBusEvent(event)));
  observeDelay(consumer, topic, at);
}

/** Keeps an event that cannot be applied now; its key is parked from here on. */
export async function deadLetter(
  tx: Connection,
  consumer: string,
  event: Event,
  error: string,
  attempts: number,
): Promise<void> {
  await execute(
    tx,
    sql`insert into dead_letter (consumer, event_id, topic, key, agg_id, agg_seq, type, payload, at, error, attempts)
      values (${consumer}, ${event.id}, ${event.topic}, ${event.key}, ${event.aggregateId}, ${event.aggregateSequence}::bigint,
        ${event.type}, ${event.payload.toString()}, ${event.at}, ${error}, ${attempts}) on conflict do nothing`,
  );
}

/** The same for one that failed: it counts as dealt with. */
export async function deadLetterFailed(
  tx: Connection,
  consumer: string,
  event: Event,
  error: string,
  attempts: number,
): Promise<void> {
  const [fresh] = await enterInbox(tx, consumer, [event]);
  if (fresh) await deadLetter(tx, consumer, fresh, error, attempts);
}

/** Applies an event that was put aside, whatever its number: who replays has seen to what was missing. */
export async function applyDeadLetter(tx: Connection, consumer: string, event: Event, handle: Handle): Promise<void> {
  await applyTraced(tx, consumer, event, handle);
  await saveSequences(tx, consumer, [event]);
}

/**
 * Forgets a part of what was dealt with long ago; the ids of events carry the time. Copies of the service may do so at
 * once: each finds less.
 */
export async function trimInbox(tx: Pick<Connection, 'query'>, consumer: string): Promise<void> {
  await execute(
    tx,
    sql`delete from inbox where consumer = ${consumer} and event_id in (
      select event_id from inbox
      where consumer = ${consumer} and event_id < uuidv7(${-inboxRetentionMs} * interval '1 millisecond') limit 10000)`,
  );
}
