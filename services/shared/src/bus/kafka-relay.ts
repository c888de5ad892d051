import type { Event } from '../gen/granary/events/v1/Event';
import type { Position } from '../gen/granary/events/v1/Position';
import { healthy, type Check, degraded } from '../health/check';
import type { Logger } from '../logger';
import { createLease, type Lease } from '../postgres/lease';
import { execute, row, type Pool } from '../postgres/pool';
import { sql } from '../postgres/sql';
import type { EventSigner } from '../trust/event-signature';
import type { KafkaBus } from './bus';
import { toMessage } from './envelope';
import { watchEpoch } from './epoch';
import type { Sender } from '../kafka/client';
import { isBehind, oldestSince } from './lag';
import { readAfter } from './outbox';
import { samePosition, start } from './position';
import { createSignal, type Signal } from '../concurrency/signal';
import { kafkaTopic, publishedTopics, subscribersOf, TopicsMissing } from './topics';

export interface RelayOptions {
  pool: Pool;
  log: Logger;
  bus: KafkaBus;
  /** Whose outbox it is. */
  service: string;
  signer: EventSigner;
  /** Notified when something was appended in this process; copies of the service are found by polling. */
  appended: Signal;
  /** Bounds of the wait between two looks when nothing comes. */
  pollMs?: { min: number; max: number };
  /** A relay that says nothing for this long is replaced by another copy. */
  leaseMs?: number;
}

export interface Relay {
  /** Lets what is under way end, and lets another copy take over at once. */
  stop(): Promise<void>;
  /** For health: degraded when events wait. */
  check: Check;
}

/** Under this name outbox_reader holds what the broker has acknowledged, so that nothing else is removed. */
export const relayReader = 'kafka-relay';

const readEvents = 500;
/** Below the smallest limit that a broker has by default for what is sent to a partition at once, 1 MiB. */
const sendBytesMax = 512 * 1024;
const retryMs = { min: 100, max: 2_000 };

/** Another copy relays now. */
class LeaseLost extends Error {
  override readonly name = 'LeaseLost';
}

/**
 * Sends what is in the outbox to Kafka, in the order of the outbox, and remembers how far it is. One copy of the service
 * at a time does so, by a lease. One that was paused, and does not know that it has lost its lease, can send again what
 * is there already, but nothing after that, because it may not move the place any more: so the first copies of all
 * messages are in order, and of later ones the consumers take no notice. Whatever fails is tried again for ever.
 */
export function startRelay(options: RelayOptions): Relay {
  const { pool, log, bus, service, signer, appended, pollMs = { min: 50, max: 200 }, leaseMs = 5_000 } = options;
  const topics = [...(publishedTopics[service] ?? [])];
  const lease = createLease(pool, relayReader, leaseMs);
  const currentEpoch = watchEpoch(pool);
  const stopped = new AbortController();
  const ending = createSignal();
  let trouble: { sinceMs: number; message: string } | undefined;
  let oldestSinceMs: number | undefined;
  let failures = 0;

  const pause = (ms: number) => (stopped.signal.aborted ? Promise.resolve() : ending.wait(ms));
  const signed = (event: Event): Event => ({
    ...event,
    signatures: signer.sign(event, subscribersOf(service, event.topic)),
  });
  const topicOf = (event: Event) => kafkaTopic(bus.prefix, service, event.topic);

  /** Sends events and moves on, in pieces that the broker takes. */
  const relay = async (sender: Sender, events: readonly Event[], from: Position, next: Position): Promise<void> => {
    let here = from;
    for (const piece of inPieces(events)) {
      await sender.send(piece.map((event) => toMessage(signed(event), topicOf(event))));
      const to = piece.at(-1)!.position!;
      await moveReader(pool, lease, here, to);
      here = to;
    }
    if (!samePosition(here, next)) await moveReader(pool, lease, here, next);
  };

  const relayWhileHeld = async (): Promise<void> => {
    const missing = await bus.kafka.missingTopics(topics.map((topic) => kafkaTopic(bus.prefix, service, topic)));
    if (missing.length > 0) throw new TopicsMissing(missing);
    const sender = await bus.kafka.openSender();
    try {
      let at = await loadReader(pool, await currentEpoch('0'));
      let idleMs = 0;
      while (!stopped.signal.aborted) {
        if (!lease.isHeld()) throw new LeaseLost('the lease was not renewed in time');
        if ((await currentEpoch(at.epoch)) !== at.epoch) return;
        const found = await readAfter(pool, at, readEvents, topics);
        const next = found.next ?? at;
        oldestSinceMs = oldestSince(found);
        if (!samePosition(next, at)) {
          await relay(sender, found.events, at, next);
          at = next;
          idleMs = 0;
        } else {
          idleMs = Math.min(pollMs.max, Math.max(pollMs.min, idleMs * 2));
          await appended.wait(Number(found.stalledMs) > 0 ? pollMs.min : idleMs, stopped.signal);
        }
        failures = 0;
        trouble = undefined;
      }
    } finally {
      oldestSinceMs = undefined;
      await sender.close();
    }
  };

  const failed = (error: unknown): void => {
    const message = error instanceof TopicsMissing ? error.message : 'events wait, they cannot be sent to Kafka';
    if (trouble?.message !== message) {
      if (error instanceof TopicsMissing) log.error({ service }, message);
      else log.warn({ err: error, service }, 'events cannot be sent to Kafka now, trying again');
    }
    trouble = { sinceMs: trouble?.sinceMs ?? performance.now(), message };
  };

  const run = async () => {
    while (!stopped.signal.aborted) {
      try {
        if (await lease.take()) {
          await relayWhileHeld();
          continue;
        }
        trouble = undefined;
        await pause(leaseMs * (0.2 + 0.2 * Math.random()));
      } catch (error) {
        if (stopped.signal.aborted) return;
        if (error instanceof LeaseLost) log.info({ service, why: error.message }, 'another copy sends events to Kafka');
        else failed(error);
        await pause(Math.min(retryMs.max, retryMs.min * 2 ** Math.min(failures++, 10)));
      }
    }
  };

  const renewing = setInterval(() => {
    // A failure shows by the lease not being held any more.
    if (lease.isHeld()) lease.take().catch(() => undefined);
  }, leaseMs / 4);
  const running = run();
  return {
    stop: async () => {
      clearInterval(renewing);
      stopped.abort();
      ending.notify();
      await running;
      await lease.release().catch(() => undefined);
    },
    check: async () => {
      if (trouble && isBehind(trouble.sinceMs)) return degraded(trouble.message);
      if (isBehind(oldestSinceMs)) return degraded('events wait to be sent to Kafka');
      return healthy;
    },
  };
}

function* inPieces(events: readonly Event[]): Generator<Event[]> {
  let piece: Event[] = [];
  let bytes = 0;
  for (const event of events) {
    const { payload, key, aggregateId, type } = event;
    const size = payload.length + 3 * (key.length + aggregateId.length + type.length) + 256;
    if (piece.length > 0 && bytes + size > sendBytesMax) {
      yield piece;
      piece = [];
      bytes = 0;
    }
    piece.push(event);
    bytes += size;
  }
  if (piece.length > 0) yield piece;
}

/** How far the broker has the events of this epoch; in another one it gets all of them again. */
async function loadReader(pool: Pool, epoch: string): Promise<Position> {
  await execute(
    pool,
    sql`insert into outbox_reader as reader (consumer, epoch, xid, pos) values (${relayReader}, ${epoch}::bigint, '0', 0)
      on conflict (consumer) do update set epoch = excluded.epoch, xid = excluded.xid, pos = excluded.pos, read_at = now()
      where reader.epoch <> excluded.epoch`,
  );
  const found = await row<{ xid: string; pos: string }>(
    pool,
    sql`select xid::text, pos::text from outbox_reader where consumer = ${relayReader}`,
  );
  return { ...start, ...found, epoch };
}

async function moveReader(pool: Pool, lease: Lease, from: Position, to: Position): Promise<void> {
  const moved = await execute(
    pool,
    sql`with held as (${lease.fence()})
      update outbox_reader set xid = ${to.xid}::xid8, pos = ${to.pos}::bigint, read_at = now() from held
      where consumer = ${relayReader} and epoch = ${from.epoch}::bigint and xid = ${from.xid}::xid8 and pos = ${from.pos}::bigint`,
  );
  if (moved !== 1) throw new LeaseLost('the place of the relay was moved by another');
}
