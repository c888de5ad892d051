import { invalid } from '../errors';
import type { Event } from '../gen/granary/events/v1/Event';
import type { OutboxDefinition } from '../gen/granary/events/v1/Outbox';
import type { Position } from '../gen/granary/events/v1/Position';
import type { ReadRequest } from '../gen/granary/events/v1/ReadRequest';
import type { ReadResponse } from '../gen/granary/events/v1/ReadResponse';
import { loadService } from '../rpc/protos';
import type { Implementation } from '../rpc/implementation';
import type { Logger } from '../logger';
import { execute, rows, type Pool, type Queryable } from '../postgres/pool';
import { empty, sql, type Sql } from '../postgres/sql';
import { allEnded, startSpan } from '../telemetry/trace';
import type { EventSigner } from '../trust/event-signature';
import { watchEpoch } from './epoch';
import { samePosition, start } from './position';
import { createSignal, type Signal } from '../concurrency/signal';

export const outboxDefinition = loadService<OutboxDefinition>('events', 'Outbox');

/** An event to publish. */
export interface OutgoingEvent {
  topic: string;
  /** Events with the same key are applied in order, and wait for each other when one cannot be applied. */
  key: string;
  /** The aggregate that the event is about. All events of an aggregate in a topic have the same key. */
  aggregateId: string;
  /**
   * The number of the event among the events of its aggregate in this topic, counted from 1 and assigned while the
   * aggregate is locked. A number that is skipped blocks the consumers; one that is used twice is refused.
   */
  aggregateSequence: bigint;
  type: string;
  payload: object;
  /** The traceparent of its publication, if that is traced. */
  trace?: string | undefined;
}

/** Events are notifications, not documents; messages of Kafka are small as well. */
const maxPayloadBytes = 64 * 1024;
const readLimitMax = 500;
const waitMaxMs = 1_000;
/** A reader's progress is written at most this often. */
const readerSavedEveryMs = 1_000;
const readerSeenEveryMs = 60_000;
const trimRows = 5_000;
const trimRounds = 20;

/**
 * Publishes events if the transaction commits. Nothing else publishes. After the commit the caller may `notify` the
 * signal that was passed to `outboxImplementation`.
 */
export async function append(tx: Queryable, events: readonly OutgoingEvent[]): Promise<void> {
  await insert(tx, events, { conditions: empty, where: empty });
}

/**
 * Publishes events in one statement with the change that they are about: `conditions` are the common table expressions
 * of the change, of which `passed` has the numbers (from 1, in `place`) of the events to publish. Returns how many.
 */
export function appendPassed(tx: Queryable, conditions: Sql, events: readonly OutgoingEvent[]): Promise<number> {
  const where = sql`where event.at in (select place from passed)`;
  return insert(tx, events, { conditions: sql`with ${conditions}`, where });
}

async function insert(
  tx: Queryable,
  events: readonly OutgoingEvent[],
  { conditions, where }: { conditions: Sql; where: Sql },
): Promise<number> {
  if (events.length === 0) return 0;
  const payloads = events.map((event) => JSON.stringify(event.payload));
  for (const [index, payload] of payloads.entries()) {
    if (Buffer.byteLength(payload) > maxPayloadBytes)
      throw new RangeError(`${events[index]!.type}: an event is too large`);
  }
  const spans = events.map(({ topic, trace }) =>
    startSpan({ service: 'bus', name: `publish ${topic}`, kind: 'producer' }, trace),
  );
  const inserted = execute(
    tx,
    sql`${conditions} insert into outbox (topic, key, agg_id, agg_seq, type, payload, trace)
      select topic, key, agg_id, agg_seq, type, payload, trace
      from unnest(${events.map((event) => event.topic)}::text[], ${events.map((event) => event.key)}::text[],
        ${events.map((event) => event.aggregateId)}::text[], ${events.map((event) => event.aggregateSequence)}::bigint[],
        ${events.map((event) => event.type)}::text[], ${payloads}::text[],
        ${spans.map((span) => span?.traceparent ?? null)}::text[])
        with ordinality as event (topic, key, agg_id, agg_seq, type, payload, trace, at)
      ${where} order by event.at`,
  );
  return allEnded(spans, inserted);
}

interface OutboxRow {
  xid: string;
  pos: bigint;
  id: string;
  topic: string;
  key: string;
  agg_id: string;
  agg_seq: bigint;
  type: string;
  /** null: of a topic that was not asked for. */
  payload: string | null;
  at: Date;
  trace: string | null;
}

interface ReadRow extends OutboxRow {
  settled: boolean;
  readAt: Date;
}

function toEvent(outboxRow: OutboxRow, epoch: string): Event {
  return {
    position: { epoch, xid: outboxRow.xid, pos: outboxRow.pos.toString() },
    id: outboxRow.id,
    topic: outboxRow.topic,
    key: outboxRow.key,
    aggregateId: outboxRow.agg_id,
    aggregateSequence: outboxRow.agg_seq.toString(),
    type: outboxRow.type,
    payload: Buffer.from(outboxRow.payload ?? ''),
    at: outboxRow.at.toISOString(),
    ...(outboxRow.trace !== null && { trace: outboxRow.trace }),
    signatures: '',
  };
}

/**
 * Events after a position, only those below the oldest running transaction, which may still commit events that precede
 * visible ones. `next` is the position to continue from, after events of other topics, too; `after` itself if there are
 * no events.
 */
export async function readAfter(pool: Pool, after: Position, limit: number, topics: string[]): Promise<ReadResponse> {
  const outboxRows = await rows<ReadRow>(
    pool,
    sql`select xid::text, pos, id, topic, key, agg_id, agg_seq, type, at, trace, settled,
        clock_timestamp() as "readAt", case when settled and (${topics.length === 0} or topic = any(${topics}::text[])) then payload end as payload
      from (
        select *, outbox.xid < pg_snapshot_xmin(pg_current_snapshot()) as settled from outbox
        where (xid, pos) > (${after.xid}::xid8, ${after.pos}::bigint) order by xid, pos limit ${limit}
      ) scanned order by scanned.xid, scanned.pos`,
  );
  const settled = outboxRows.filter((each) => each.settled);
  const heldBack = outboxRows[settled.length];
  const last = settled.at(-1);
  return {
    events: settled.filter((each) => each.payload !== null).map((each) => toEvent(each, after.epoch)),
    next: last ? { epoch: after.epoch, xid: last.xid, pos: last.pos.toString() } : after,
    stalledMs: heldBack ? Math.max(0, heldBack.readAt.getTime() - heldBack.at.getTime()).toString() : '0',
    // Without events there is no age.
    readAtMs: (outboxRows[0]?.readAt.getTime() ?? 0).toString(),
    signatures: '',
  };
}

async function saveReader(pool: Pool, consumer: string, position: Position): Promise<void> {
  await execute(
    pool,
    sql`insert into outbox_reader as reader (consumer, epoch, xid, pos)
      values (${consumer}, ${position.epoch}::bigint, ${position.xid}::xid8, ${position.pos}::bigint)
      on conflict (consumer) do update set epoch = excluded.epoch, xid = excluded.xid, pos = excluded.pos, read_at = now()
      where (reader.epoch, reader.xid, reader.pos) <= (excluded.epoch, excluded.xid, excluded.pos)`,
  );
}

/**
 * Removes events that are older than the retention and that every known consumer has read, oldest first. A consumer
 * that no longer exists must be deleted from outbox_reader, or nothing is removed any more. Copies of the service may
 * do so concurrently.
 */
async function trim(pool: Pool, epoch: string, retentionMs: number): Promise<void> {
  for (let round = 0; round < trimRounds; round++) {
    const removed = await execute(
      pool,
      sql`delete from outbox where (xid, pos) in (
        select oldest.xid, oldest.pos
        from (select xid, pos, at from outbox order by xid, pos limit ${trimRows}) oldest,
          (select epoch, xid, pos from outbox_reader order by epoch, xid, pos limit 1) slowest
        where slowest.epoch = ${epoch}::bigint and (oldest.xid, oldest.pos) <= (slowest.xid, slowest.pos)
          and oldest.at < now() - ${retentionMs} * interval '1 millisecond')`,
    );
    if (removed < trimRows) return;
  }
}

function checked(request: ReadRequest): { after: Position; limit: number; waitMs: number } {
  const after = request.after ?? start;
  if (!/^[a-z][a-z0-9.-]{0,62}$/.test(request.consumer)) throw invalid('A consumer needs a name');
  if (![after.epoch, after.xid, after.pos].every((part) => /^\d{1,19}$/.test(part))) throw invalid('No such position');
  const limit = Math.min(readLimitMax, request.limit > 0 ? request.limit : readLimitMax);
  return { after, limit, waitMs: Math.min(waitMaxMs, Math.max(0, request.waitMs)) };
}

/**
 * The Outbox service of a process, on the outbox in its database. Code that appends in the same process notifies
 * `appended` after the commit, which ends the wait of readers.
 */
export function outboxImplementation(options: {
  pool: Pool;
  log: Logger;
  signer: EventSigner;
  appended?: Signal;
  /** Age at which events that all consumers have read are removed. */
  retentionMs?: number;
  trimEveryMs?: number;
}): Implementation<OutboxDefinition> {
  const { pool, log, signer, appended = createSignal(), retentionMs = 7 * 86_400_000, trimEveryMs = 60_000 } = options;
  const readers = new Map<string, { at: Position; savedMs: number }>();
  let trimmedMs = performance.now();

  const currentEpoch = watchEpoch(pool);
  const remember = async (consumer: string, position: Position) => {
    const saved = readers.get(consumer);
    const agedMs = performance.now() - (saved?.savedMs ?? -Infinity);
    if (saved && (agedMs < readerSavedEveryMs || (samePosition(saved.at, position) && agedMs < readerSeenEveryMs)))
      return;
    await saveReader(pool, consumer, position);
    readers.set(consumer, { at: position, savedMs: performance.now() });
  };
  const trimSometimes = async (epoch: string) => {
    if (performance.now() - trimmedMs < trimEveryMs) return;
    trimmedMs = performance.now();
    await trim(pool, epoch, retentionMs).catch((error: unknown) =>
      log.warn({ err: error }, 'old events were not removed'),
    );
  };

  const signed = (page: ReadResponse, after: Position, { consumer, topics }: ReadRequest): ReadResponse => ({
    ...page,
    events: page.events.map((event) => ({ ...event, signatures: signer.sign(event, [consumer]) })),
    signatures: signer.signPage({ consumer, topics, after, next: page.next ?? after, events: page.events }, consumer),
  });

  return {
    definition: outboxDefinition,
    handlers: {
      read: async (request, call) => {
        const { after: requested, limit, waitMs } = checked(request);
        const epoch = await currentEpoch(requested.epoch);
        const after = requested.epoch === epoch ? requested : { ...start, epoch };
        await remember(request.consumer, after);
        await trimSometimes(epoch);
        const page = await readAfter(pool, after, limit, request.topics);
        if (waitMs === 0 || page.next !== after) return signed(page, requested, request);
        // The consumer reads again at once, and then has what other processes appended meanwhile.
        const isAppended = await appended.wait(waitMs, call.signal);
        return signed(isAppended ? await readAfter(pool, after, limit, request.topics) : page, requested, request);
      },

      readAggregate: async (request) => {
        const outboxRows = await rows<OutboxRow>(
          pool,
          sql`select xid::text, pos, id, topic, key, agg_id, agg_seq, type, payload, at, trace from outbox
            where topic = ${request.topic} and agg_id = ${request.aggregateId} and agg_seq > ${request.afterSequence}::bigint
            order by agg_seq limit ${Math.min(readLimitMax, Math.max(1, request.limit))}`,
        );
        const epoch = await currentEpoch('0');
        const readers = [request.consumer];
        const events = outboxRows.map((each) => toEvent(each, epoch));
        return { events: events.map((event) => ({ ...event, signatures: signer.sign(event, readers) })) };
      },
    },
  };
}
