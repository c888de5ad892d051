import { Backoff, pause } from '../concurrency/backoff';
import type { Signal } from '../concurrency/signal';
import type { Event } from '../gen/granary/events/v1/Event';
import type { Position } from '../gen/granary/events/v1/Position';
import { degraded, healthy, type Finding } from '../health/check';
import type { Sender } from '../kafka/sender';
import type { Logger } from '../logger';
import { createLease, type Lease } from '../postgres/lease';
import { execute, row, type Pool } from '../postgres/pool';
import { sql } from '../postgres/sql';
import type { EventSigner } from '../trust/event-signature';
import type { KafkaBus } from './bus';
import { toMessage } from './envelope';
import { watchEpoch } from './epoch';
import { isBehind, oldestSince } from './lag';
import { readAfter } from './outbox';
import { samePosition, start } from './position';
import { kafkaTopic, publishedTopics, subscribersOf, TopicsMissing } from './topics';

export interface RelayOptions {
  pool: Pool;
  log: Logger;
  bus: KafkaBus;
  /** The service whose outbox is relayed. */
  service: string;
  signer: EventSigner;
  /** Notified when something was appended in this process; what other copies append is found by polling. */
  appended: Signal;
  /** Bounds of the interval between two polls while there are no events. */
  pollMs?: { min: number; max: number };
  /** A relay that does not renew its lease for this long is replaced by another copy. */
  leaseMs?: number;
}

/**
 * The key of the relay in outbox_reader: its position there is acknowledged by the broker, so older events may be
 * removed.
 */
export const relayReader = 'kafka-relay';

const readEvents = 500;
/** The limit of one send: less than the smallest default limit of a broker for one batch of a partition, 1 MiB. */
const sendBytesMax = 512 * 1024;

/** Another copy relays now. */
class LeaseLost extends Error {
  override readonly name = 'LeaseLost';
}

/**
 * Sends the events of an outbox to Kafka, in its order, and records its position. One copy of the service at a time
 * does so, under a lease. A copy that was suspended, and does not know that it has lost its lease, can send again what
 * has been sent, but nothing after it, because it cannot move the position: so the first copies of all messages are in
 * order, and consumers ignore later copies. Retries for ever.
 */
export class KafkaRelay {
  private readonly lease: Lease;
  private readonly currentEpoch: (known: string) => Promise<string>;
  private readonly topics: string[];
  private readonly pollMs: { min: number; max: number };
  private readonly leaseMs: number;
  private readonly stopping = new AbortController();
  private readonly backoff = new Backoff({ firstMs: 200, maxMs: 2_000 });
  private readonly renewing: NodeJS.Timeout;
  private readonly running: Promise<void>;
  private trouble: { sinceMs: number; message: string } | undefined;
  private oldestSinceMs: number | undefined;
  /** Whether the last page was held back by a running transaction. */
  private isStalled = false;

  constructor(private readonly options: RelayOptions) {
    const { pool, service, pollMs = { min: 50, max: 200 }, leaseMs = 5_000 } = options;
    this.pollMs = pollMs;
    this.leaseMs = leaseMs;
    this.topics = [...(publishedTopics[service] ?? [])];
    this.lease = createLease(pool, relayReader, leaseMs);
    this.currentEpoch = watchEpoch(pool);
    this.renewing = setInterval(() => this.renewLease(), leaseMs / 4);
    this.running = this.run();
  }

  /** The health check: degraded when events wait. */
  readonly check = async (): Promise<Finding> => {
    if (this.trouble && isBehind(this.trouble.sinceMs)) return degraded(this.trouble.message);
    if (isBehind(this.oldestSinceMs)) return degraded('events wait to be sent to Kafka');
    return healthy;
  };

  /** Resolves when what is under way has ended; another copy can take over at once. */
  async stop(): Promise<void> {
    clearInterval(this.renewing);
    this.stopping.abort();
    await this.running;
    await this.lease.release().catch(() => undefined);
  }

  private get isStopping(): boolean {
    return this.stopping.signal.aborted;
  }

  private renewLease(): void {
    // After a failure the lease is no longer held, which the relay notices.
    if (this.lease.isHeld()) this.lease.take().catch(() => undefined);
  }

  private async run(): Promise<void> {
    const { signal } = this.stopping;
    while (!signal.aborted) {
      try {
        if (await this.lease.take()) {
          await this.relayWhileHeld();
          continue;
        }
        this.trouble = undefined;
        await pause(this.leaseMs * (0.2 + 0.2 * Math.random()), signal);
      } catch (error) {
        if (signal.aborted) return;
        this.report(error);
        await this.backoff.wait(signal);
      }
    }
  }

  /** Logs each reason once, and keeps it for health. */
  private report(error: unknown): void {
    const { log, service } = this.options;
    if (error instanceof LeaseLost) {
      log.info({ service, why: error.message }, 'another copy sends events to Kafka');
      return;
    }
    const message = error instanceof TopicsMissing ? error.message : 'events wait, they cannot be sent to Kafka';
    if (this.trouble?.message !== message) {
      if (error instanceof TopicsMissing) log.error({ service }, message);
      else log.warn({ err: error, service }, 'events cannot be sent to Kafka now, trying again');
    }
    this.trouble = { sinceMs: this.trouble?.sinceMs ?? performance.now(), message };
  }

  /** Relays as long as the lease is held and the epoch is the same. */
  private async relayWhileHeld(): Promise<void> {
    const { pool, bus } = this.options;
    const missing = await bus.kafka.missingTopics(this.topics.map((topic) => this.kafkaTopic(topic)));
    if (missing.length > 0) throw new TopicsMissing(missing);
    const sender = await bus.kafka.openSender();
    try {
      let position = await loadReader(pool, await this.currentEpoch('0'));
      let idleMs = 0;
      while (!this.isStopping) {
        if (!this.lease.isHeld()) throw new LeaseLost('the lease was not renewed in time');
        if ((await this.currentEpoch(position.epoch)) !== position.epoch) return;
        const next = await this.relayPage(sender, position);
        if (next) {
          position = next;
          idleMs = 0;
        } else {
          idleMs = await this.idle(idleMs);
        }
        this.backoff.reset();
        this.trouble = undefined;
      }
    } finally {
      this.oldestSinceMs = undefined;
      await sender.close();
    }
  }

  /** Sends the next events; returns the position after them, undefined if there were none. */
  private async relayPage(sender: Sender, position: Position): Promise<Position | undefined> {
    const page = await readAfter(this.options.pool, position, readEvents, this.topics);
    const next = page.next ?? position;
    this.oldestSinceMs = oldestSince(page);
    this.isStalled = Number(page.stalledMs) > 0;
    if (samePosition(next, position)) return undefined;
    await this.send(sender, page.events, position, next);
    return next;
  }

  /** Waits until the next poll; returns for how long. */
  private async idle(lastMs: number): Promise<number> {
    const { min, max } = this.pollMs;
    const idleMs = Math.min(max, Math.max(min, lastMs * 2));
    await this.options.appended.wait(this.isStalled ? min : idleMs, this.stopping.signal);
    return idleMs;
  }

  /** Sends events in batches that the broker accepts, and records the position after each. */
  private async send(sender: Sender, events: readonly Event[], from: Position, next: Position): Promise<void> {
    const { pool } = this.options;
    let here = from;
    for (const batch of inBatches(events)) {
      await sender.send(batch.map((event) => toMessage(this.signed(event), this.kafkaTopic(event.topic))));
      const to = batch.at(-1)!.position!;
      await moveReader(pool, this.lease, here, to);
      here = to;
    }
    if (!samePosition(here, next)) await moveReader(pool, this.lease, here, next);
  }

  private kafkaTopic(topic: string): string {
    return kafkaTopic(this.options.bus.prefix, this.options.service, topic);
  }

  private signed(event: Event): Event {
    const { signer, service } = this.options;
    return { ...event, signatures: signer.sign(event, subscribersOf(service, event.topic)) };
  }
}

function* inBatches(events: readonly Event[]): Generator<Event[]> {
  let batch: Event[] = [];
  let bytes = 0;
  for (const event of events) {
    const { payload, key, aggregateId, type } = event;
    const size = payload.length + 3 * (key.length + aggregateId.length + type.length) + 256;
    if (batch.length > 0 && bytes + size > sendBytesMax) {
      yield batch;
      batch = [];
      bytes = 0;
    }
    batch.push(event);
    bytes += size;
  }
  if (batch.length > 0) yield batch;
}

/** The position up to which the broker has the events of this epoch; in a new epoch all events are sent again. */
async function loadReader(pool: Pool, epoch: string): Promise<Position> {
  await execute(
    pool,
    sql`insert into outbox_reader as reader (consumer, epoch, xid, pos) values (${relayReader}, ${epoch}::bigint, '0', 0)
      on conflict (consumer) do update set epoch = excluded.epoch, xid = excluded.xid, pos = excluded.pos, read_at = now()
      where reader.epoch <> excluded.epoch`,
  );
  const reader = await row<{ xid: string; pos: string }>(
    pool,
    sql`select xid::text, pos::text from outbox_reader where consumer = ${relayReader}`,
  );
  return { ...start, ...reader, epoch };
}

async function moveReader(pool: Pool, lease: Lease, from: Position, to: Position): Promise<void> {
  const moved = await execute(
    pool,
    sql`with held as (${lease.fence()})
      update outbox_reader set xid = ${to.xid}::xid8, pos = ${to.pos}::bigint, read_at = now() from held
      where consumer = ${relayReader} and epoch = ${from.epoch}::bigint and xid = ${from.xid}::xid8 and pos = ${from.pos}::bigint`,
  );
  if (moved !== 1) throw new LeaseLost('another copy has moved the position');
}
