import type { Event } from '../gen/granary/events/v1/Event';
import type { Position } from '../gen/granary/events/v1/Position';
import { execute, row, rows, type Connection } from '../postgres/pool';
import { join, sql } from '../postgres/sql';
import { observeDelay } from './metrics';
import { traced } from '../telemetry/trace';
import type { PartitionOffset } from '../kafka/messages';
import { start } from './position';

/** An event as a handler gets it. */
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

/**
 * Applies one event. All of its effects must use `tx`: they are committed once, together with the consumer's cursor.
 */
export type Handle = (tx: Connection, event: BusEvent) => Promise<void>;

/** Thrown by a handler for an event that can never be applied. It is dead-lettered at once. */
export class PoisonEvent extends Error {
  override readonly name = 'PoisonEvent';
}

/** Events of an aggregate that are missing: those after `lastSequence`, before `event`. */
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

/** Another copy of the consumer has locked or moved the cursor since it was read. */
export class CursorConflict extends Error {
  override readonly name = 'CursorConflict';
}

/** The time that the inbox keeps events: longer than any outbox keeps those that all consumers have read. */
const inboxRetentionMs = 14 * 86_400_000;

/** The cursor of a consumer in the outbox of its source. */
export async function loadCursor(tx: Pick<Connection, 'query'>, consumer: string): Promise<Position> {
  await execute(tx, sql`insert into bus_cursor (consumer) values (${consumer}) on conflict do nothing`);
  const cursor = await row<{ epoch: string; xid: string; pos: string }>(
    tx,
    sql`select epoch::text, xid::text, pos::text from bus_cursor where consumer = ${consumer}`,
  );
  return cursor ?? start;
}

/** The advisory lock of a consumer: shared by those who apply events of one partition, exclusive for all others. */
const consumerLock = (consumer: string) => sql`hashtextextended(${`bus ${consumer}`}, 0)`;

/**
 * Locks the consumer's cursor and moves it. With `exclusive` nobody else applies events of the consumer until the end
 * of the transaction. Throws CursorConflict, without waiting for another copy, when the cursor is not at `from`.
 */
export async function moveCursor(
  tx: Connection,
  consumer: string,
  from: Position,
  to: Position,
  exclusive: boolean,
): Promise<void> {
  const lock = exclusive ? sql`pg_advisory_xact_lock(${consumerLock(consumer)})` : sql`1`;
  const locked = await row(
    tx,
    sql`with here as materialized (
        select from bus_cursor where consumer = ${consumer} and epoch = ${from.epoch}::bigint
          and xid = ${from.xid}::xid8 and pos = ${from.pos}::bigint for update skip locked)
      select ${lock} from here`,
  );
  if (!locked) throw new CursorConflict('another copy has locked or moved the cursor');
  if (from === to) return;
  await execute(
    tx,
    sql`update bus_cursor set epoch = ${to.epoch}::bigint, xid = ${to.xid}::xid8, pos = ${to.pos}::bigint, moved_at = now()
      where consumer = ${consumer}`,
  );
}

/** Locks the consumer: until the end of the transaction nobody else applies events of it. */
export async function holdConsumer(tx: Connection, consumer: string): Promise<void> {
  // The locks are taken in the same order as in moveCursor, so that there are no deadlocks.
  await execute(tx, sql`select from bus_cursor where consumer = ${consumer} for update`);
  await execute(tx, sql`select pg_advisory_xact_lock(${consumerLock(consumer)})`);
}

/** The offsets of a consumer in partitions of Kafka. */
export async function loadOffsets(db: Pick<Connection, 'query'>, consumer: string): Promise<PartitionOffset[]> {
  return rows<PartitionOffset>(db, sql`select topic, partition, next from bus_offset where consumer = ${consumer}`);
}

/**
 * Locks the consumer's offset in a partition and sets it, whatever it was: a topic that was created again starts at 0.
 * Until the end of the transaction nobody else applies events of this partition.
 */
export async function saveOffset(tx: Connection, consumer: string, offset: PartitionOffset): Promise<void> {
  await execute(
    tx,
    sql`with held as materialized (select pg_advisory_xact_lock_shared(${consumerLock(consumer)}))
      insert into bus_offset (consumer, topic, partition, next)
      select ${consumer}, ${offset.topic}, ${offset.partition}::int, ${offset.next}::bigint from held
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
 * Events in the order in which they are applied: as they were read, but within an aggregate by sequence number. The
 * order of transaction ids may differ from it, because a transaction that began earlier may have waited longer for the
 * aggregate.
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

/** Adds events to the inbox; returns those that were not in it. */
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

/** The events that the consumer has not processed yet. */
export async function notInInbox(
  db: Pick<Connection, 'query'>,
  consumer: string,
  events: readonly Event[],
): Promise<Event[]> {
  if (events.length === 0) return [];
  const inboxRows = await rows<{ event_id: string }>(
    db,
    sql`select event_id from inbox
      where consumer = ${consumer} and event_id = any(${events.map((event) => event.id)}::uuid[])`,
  );
  const ids = new Set(inboxRows.map((each) => each.event_id));
  return events.filter((event) => !ids.has(event.id));
}

/** The keys of these events that are parked, each with the reason for which its later events wait. */
async function parkedKeys(tx: Connection, consumer: string, events: readonly Event[]): Promise<Map<string, string>> {
  const deadLetters = await rows<{ key: string; event_id: string; type: string; error: string | null }>(
    tx,
    sql`select distinct on (key) key, event_id, type, error from dead_letter
      where consumer = ${consumer} and key = any(${events.map((event) => event.key)}::text[]) order by key, number`,
  );
  return new Map(
    deadLetters.map(({ key, event_id, type, error }) => [
      key,
      `waits behind ${type} ${event_id}, which failed: ${error}`,
    ]),
  );
}

async function lastSequences(tx: Connection, consumer: string, events: readonly Event[]): Promise<Map<string, bigint>> {
  const aggregates = await rows<{ topic: string; agg_id: string; last_seq: bigint }>(
    tx,
    sql`select topic, agg_id, last_seq from bus_aggregate where consumer = ${consumer} and (topic, agg_id) in (
      select * from unnest(${events.map((event) => event.topic)}::text[], ${events.map((event) => event.aggregateId)}::text[]))`,
  );
  return new Map(
    aggregates.map((each) => [aggregateOf({ topic: each.topic, aggregateId: each.agg_id }), each.last_seq]),
  );
}

export async function saveSequences(
  tx: Connection,
  consumer: string,
  applied: ReadonlyArray<Pick<Event, 'topic' | 'aggregateId' | 'aggregateSequence'>>,
): Promise<void> {
  if (applied.length === 0) return;
  // Rows are written in the same order everywhere, so that there are no deadlocks.
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

/** The gaps in the sequence numbers of these events and of those that were applied. */
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
 * Applies events in a transaction that has locked the consumer's cursor: each once, in order, except those that were
 * processed before; those of a parked key are parked. Throws what the handler throws, and GapError; roll back then.
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
      // Applied so long ago that its entry in the inbox was removed, or another event with a number that was used.
      if (await isBeyondInbox(tx, event)) continue;
      throw new PoisonEvent(`the sequence number ${event.aggregateSequence} was used before, by another event`);
    }
    await applyTraced(tx, consumer, event, handle);
    sequences.set(aggregate, BigInt(event.aggregateSequence));
    applied.set(aggregate, event);
  }
  await saveSequences(tx, consumer, [...applied.values()]);
}

/** Whether an event is so old that its entry in the inbox may be gone, by the database's clock. */
async function isBeyondInbox(tx: Connection, event: Event): Promise<boolean> {
  const result = await row<{ old: boolean }>(
    tx,
    sql`select ${event.at}::timestamptz < now() - ${inboxRetentionMs} * interval '1 millisecond' as old`,
  );
  return result!.old;
}

/** Applies one event, in a span of the trace of its publication. */
async function applyTraced(tx: Connection, consumer: string, event: Event, handle: Handle): Promise<void> {
  const { topic, at: time, trace } = event;
  const [service = consumer] = consumer.split('-');
  await traced({ service, name: `apply ${topic}`, kind: 'consumer' }, trace, async () => handle(tx, toBusEvent(event)));
  observeDelay(consumer, topic, time);
}

/** Stores an event that cannot be applied now, and thereby parks its key. */
async function deadLetter(
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

/** Dead-letters an event that failed; it counts as processed. */
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

/** Applies a dead letter, whatever its sequence number: the operator has decided about events that are missing. */
export async function applyDeadLetter(tx: Connection, consumer: string, event: Event, handle: Handle): Promise<void> {
  await applyTraced(tx, consumer, event, handle);
  await saveSequences(tx, consumer, [event]);
}

/**
 * Removes some of the entries of events that were processed long ago; the ids of events contain the time. Copies of the
 * service may do so concurrently.
 */
export async function trimInbox(tx: Pick<Connection, 'query'>, consumer: string): Promise<void> {
  await execute(
    tx,
    sql`delete from inbox where consumer = ${consumer} and event_id in (
      select event_id from inbox
      where consumer = ${consumer} and event_id < uuidv7(${-inboxRetentionMs} * interval '1 millisecond') limit 10000)`,
  );
}
