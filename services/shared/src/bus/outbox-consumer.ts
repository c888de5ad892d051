import { Backoff } from '../concurrency/backoff';
import { createSignal } from '../concurrency/signal';
import { ServiceError } from '../errors';
import type { Event } from '../gen/granary/events/v1/Event';
import type { Position } from '../gen/granary/events/v1/Position';
import type { ReadResponse } from '../gen/granary/events/v1/ReadResponse';
import { degraded, healthy, type Finding } from '../health/check';
import { transaction } from '../postgres/transaction';
import type { Consumer, ConsumerOptions } from './consumer';
import { countDeadLetters, describeDeadLetters, replayDeadLetters } from './dead-letters';
import { batchEvents, EventApplier, readTimeoutMs, signedOnly } from './event-applier';
import { CursorConflict, loadCursor, moveCursor, notInInbox, trimInbox } from './inbox';
import { ageMs, behindMs, isBehind, oldestSince } from './lag';
import { samePosition } from './position';

/** With `sweepAfterMs`, the consumer applies only events that are older than this and have not been applied yet. */
export type OutboxConsumerOptions = ConsumerOptions & { sweepAfterMs?: number };

const trimEveryMs = 60_000;
const replayEveryMs = 1_000;
/** How long health reports that Kafka has not delivered all events. */
const sweptSeenMs = 60_000;

/**
 * Reads an outbox from the consumer's cursor on, and applies its events. With `sweepAfterMs` it is the safety net of a
 * consumer that gets its events from Kafka. Each read also gives the outbox the consumer's cursor, so that it can
 * remove old events. Carries out the replays that were requested.
 */
export class OutboxConsumer implements Consumer {
  readonly failed = new Promise<never>(() => {});
  readonly lag = () => this.checkLag();
  private readonly pollMs: { min: number; max: number };
  private readonly applier: EventApplier<Position>;
  private readonly awake = createSignal();
  private readonly running: Promise<void>;
  private isStopping = false;
  /** The next read does not wait for events. */
  private isImpatient = false;
  /** Ends the read under way when it waits for events. */
  private waitingRead: AbortController | undefined;
  private idleMs = 0;
  private trimmedMs = performance.now();
  private replayedMs = -Infinity;
  /** The time since which nothing could be applied; this and the times below are by `performance.now()`. */
  private troubleSinceMs: number | undefined;
  private oldestSinceMs: number | undefined;
  private sweptMs: number | undefined;
  private stalledMs = 0;

  constructor(private readonly options: OutboxConsumerOptions) {
    const { name, attempts = 5, pollMs = { min: 50, max: 200 } } = options;
    this.pollMs = pollMs;
    this.applier = new EventApplier({
      ...options,
      attempts,
      pause: (ms) => this.pause(ms),
      move: (tx, from, to) => moveCursor(tx, name, from, to, true),
    });
    this.running = this.run();
  }

  wake(): void {
    this.isImpatient = true;
    this.waitingRead?.abort();
    this.awake.notify();
  }

  async stop(): Promise<void> {
    this.isStopping = true;
    this.wake();
    await this.running;
  }

  private get isSweep(): boolean {
    return this.options.sweepAfterMs !== undefined;
  }

  /** Ends early when the consumer is woken or stopped. */
  private async pause(ms: number): Promise<void> {
    if (!this.isStopping) await this.awake.wait(ms);
  }

  private async run(): Promise<void> {
    const backoff = new Backoff({ firstMs: 200, maxMs: 2_000 });
    let position: Position | undefined;
    while (!this.isStopping) {
      try {
        position = await this.poll(position ?? (await loadCursor(this.options.pool, this.options.name)));
        backoff.reset();
        this.troubleSinceMs = undefined;
        await this.maintain();
      } catch (error) {
        position = undefined;
        await this.recover(error, backoff);
      }
    }
  }

  /** Waits after a failed poll. */
  private async recover(error: unknown, backoff: Backoff): Promise<void> {
    const { log, name } = this.options;
    if (error instanceof CursorConflict) return this.pause(this.pollMs.max * Math.random());
    if (this.isStopping || isCancelled(error)) return;
    this.troubleSinceMs ??= performance.now();
    if (backoff.failures === 0) log.warn({ err: error, consumer: name }, 'events cannot be applied now, trying again');
    await this.pause(backoff.nextMs());
  }

  /** Reads and applies events once; returns the cursor after them. */
  private async poll(position: Position): Promise<Position> {
    const waitMs = this.isImpatient ? 0 : this.idleMs;
    this.isImpatient = false;
    const { sweepAfterMs } = this.options;
    // A sweep does not wait in the outbox: events that are too young to be swept would end the wait at once.
    if (this.isSweep && waitMs > 0) await this.pause(waitMs);
    const response = await this.read(position, this.isSweep ? 0 : waitMs);
    this.stalledMs = Number(response.stalledMs);
    const { events, next } =
      sweepAfterMs === undefined
        ? { ...response, next: response.next ?? position }
        : olderThan(response, position, sweepAfterMs);
    this.oldestSinceMs = events[0] && oldestSince(response);
    if (samePosition(next, position)) {
      const { min, max } = this.pollMs;
      this.idleMs = this.stalledMs > 0 ? min : Math.min(max, Math.max(min, this.idleMs * 2));
    } else {
      await this.consume(events, position, next);
      this.idleMs = 0;
    }
    return next;
  }

  private async read(after: Position, waitMs: number): Promise<ReadResponse> {
    const { name, topics, source, verifier, from } = this.options;
    this.waitingRead = waitMs > 0 ? new AbortController() : undefined;
    const call = {
      requestId: `bus:${name}`,
      deadlineMs: Date.now() + waitMs + readTimeoutMs,
      signal: (this.waitingRead ?? new AbortController()).signal,
    };
    const response = await source.read({ consumer: name, after, limit: batchEvents, topics, waitMs }, call);
    // Otherwise another service could make this consumer skip events.
    const page = { consumer: name, topics, after, next: response.next ?? after, events: response.events };
    if (!verifier.isPageSigned(page, response.signatures))
      throw new Error(`the page of the outbox of ${from} has no valid signature`);
    return response;
  }

  private async consume(pageEvents: readonly Event[], from: Position, next: Position): Promise<void> {
    const { pool, log, name } = this.options;
    const signed = await signedOnly(this.options, pageEvents);
    const events = this.isSweep ? await notInInbox(pool, name, signed) : signed;
    // The lock of the consumer is not taken, so that members that apply messages of Kafka do not wait for it.
    if (events.length === 0) return transaction(pool, (tx) => moveCursor(tx, name, from, next, false));
    const steps = events.map((event) => ({ event, to: event.position! }));
    await this.applier.apply(steps, from, next, () => this.isStopping);
    if (!this.isSweep) return;
    this.sweptMs = performance.now();
    log.warn({ consumer: name, events: events.length }, 'events that Kafka did not deliver were read from the outbox');
  }

  private async maintain(): Promise<void> {
    const { pool, log, name, handle } = this.options;
    if (performance.now() - this.trimmedMs > trimEveryMs) {
      this.trimmedMs = performance.now();
      await trimInbox(pool, name);
    }
    if (performance.now() - this.replayedMs > replayEveryMs) {
      this.replayedMs = performance.now();
      const { applied, failedKeys } = await replayDeadLetters(pool, name, handle, 'requested');
      if (applied > 0 || failedKeys.length > 0)
        log.info({ consumer: name, applied, failedKeys }, 'events were replayed');
    }
  }

  private async checkLag(): Promise<Finding> {
    const { pool, name, sweepAfterMs = 0 } = this.options;
    const deadLetters = describeDeadLetters(name, await countDeadLetters(pool, name));
    if (deadLetters !== undefined) return degraded(deadLetters);
    if (isBehind(this.troubleSinceMs)) return degraded('events cannot be applied');
    if (isBehind(this.oldestSinceMs, behindMs + sweepAfterMs)) return degraded('events are behind');
    if (this.stalledMs > behindMs) return degraded('events are held back by a long transaction');
    if (this.sweptMs !== undefined && performance.now() - this.sweptMs < sweptSeenMs)
      return degraded('Kafka did not deliver all events; they were read from the outbox');
    return healthy;
  }
}

/** The first of the events, as long as they are old enough, and the cursor after them. */
function olderThan(response: ReadResponse, position: Position, minAgeMs: number): { events: Event[]; next: Position } {
  const young = response.events.findIndex((event) => ageMs(response, event) < minAgeMs);
  if (young === -1) return { events: response.events, next: response.next ?? position };
  const events = response.events.slice(0, young);
  return { events, next: events.at(-1)?.position ?? position };
}

const isCancelled = (error: unknown) => error instanceof ServiceError && error.code === 'CANCELLED';
