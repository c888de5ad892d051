import { ServiceError } from '../errors';
import type { Event } from '../gen/granary/events/v1/Event';
import type { Position } from '../gen/granary/events/v1/Position';
import type { ReadResponse } from '../gen/granary/events/v1/ReadResponse';
import { healthy, type Check, degraded } from '../health/check';
import { transaction } from '../postgres/transaction';
import { batchEvents, createEventApplier, signedOnly, readTimeoutMs } from './event-applier';
import type { Consumer, ConsumerOptions } from './consumer';
import { countDeadLetters, describeDeadLetters, replayDeadLetters } from './dead-letters';
import { CursorConflict, loadCursor, moveCursor, notInInbox, trimInbox } from './inbox';
import { ageMs, behindMs, isBehind, oldestSince } from './lag';
import { samePosition } from './position';
import { createSignal } from '../concurrency/signal';

const retryMs = { min: 100, max: 2_000 };
const houseworkEveryMs = 60_000;
const replayEveryMs = 1_000;
/** How long events that Kafka did not bring are worth a word in health. */
const sweptSeenMs = 60_000;

/**
 * Reads an outbox from the consumer's place on, and applies what is there. With `sweepAfterMs` only what is older than
 * that and was not applied yet: that is how a consumer that gets its events from Kafka sees to it that none is missing.
 * It also lets the outbox know how far the consumer is, and carries out the replays that were asked for.
 */
export function startOutboxConsumer(options: ConsumerOptions & { sweepAfterMs?: number }): Consumer {
  const { pool, log, name, source, verifier, topics, handle, attempts = 5, sweepAfterMs } = options;
  const pollMs = options.pollMs ?? { min: 50, max: 200 };
  const sweeping = sweepAfterMs !== undefined;
  const awake = createSignal();
  let stopping = false;
  let impatient = false;
  let waiting: AbortController | undefined;
  let troubleSinceMs: number | undefined;
  let oldestSinceMs: number | undefined;
  let stalledMs = 0;
  let sweptMs: number | undefined;

  const pause = (ms: number) => (stopping ? Promise.resolve() : awake.wait(ms));
  const apply = createEventApplier<Position>({
    ...{ pool, log, name, source, verifier, handle, attempts, pause },
    move: (tx, from, to) => moveCursor(tx, name, from, to, true),
  });

  const read = async (after: Position, waitMs: number): Promise<ReadResponse> => {
    waiting = waitMs > 0 ? new AbortController() : undefined;
    const call = {
      requestId: `bus:${name}`,
      deadlineMs: Date.now() + waitMs + readTimeoutMs,
      signal: (waiting ?? new AbortController()).signal,
    };
    const found = await source.read({ consumer: name, after, limit: batchEvents, topics, waitMs }, call);
    // Else somebody else could make this consumer pass over events.
    const page = { consumer: name, topics, after, next: found.next ?? after, events: found.events };
    if (!verifier.isPageSigned(page, found.signatures))
      throw new Error(`what was read of the outbox of ${options.from} is not signed by it`);
    return found;
  };

  const consume = async (found: readonly Event[], from: Position, next: Position): Promise<void> => {
    const events = await signedOnly({ pool, log, name, verifier }, found);
    const left = sweeping ? await notInInbox(pool, name, events) : events;
    // Those who apply what Kafka brings need not wait for that.
    if (left.length === 0) return transaction(pool, (tx) => moveCursor(tx, name, from, next, false));
    const steps = left.map((event) => ({ event, to: event.position! }));
    await apply(steps, from, next, () => stopping);
    if (!sweeping) return;
    sweptMs = performance.now();
    log.warn({ consumer: name, events: left.length }, 'events that Kafka did not bring were taken from the outbox');
  };

  /** One look at the outbox; answers where it came to. */
  const look = async (at: Position, waitMs: number): Promise<Position> => {
    // What is too young to be swept would be an answer at once.
    if (sweeping && waitMs > 0) await pause(waitMs);
    const found = await read(at, sweeping ? 0 : waitMs);
    stalledMs = Number(found.stalledMs);
    const { events, next } = sweeping ? ripe(found, at, sweepAfterMs) : { ...found, next: found.next ?? at };
    oldestSinceMs = events[0] && oldestSince(found);
    if (!samePosition(next, at)) await consume(events, at, next);
    return next;
  };

  const run = async () => {
    let at: Position | undefined;
    let idleMs = 0;
    let failures = 0;
    let houseworkMs = performance.now();
    let replayMs = -Infinity;
    while (!stopping) {
      try {
        at ??= await loadCursor(pool, name);
        const waitMs = impatient ? 0 : idleMs;
        impatient = false;
        const next = await look(at, waitMs);
        if (!samePosition(next, at)) idleMs = 0;
        else idleMs = stalledMs > 0 ? pollMs.min : Math.min(pollMs.max, Math.max(pollMs.min, idleMs * 2));
        at = next;
        failures = 0;
        troubleSinceMs = undefined;
        if (performance.now() - houseworkMs > houseworkEveryMs) {
          houseworkMs = performance.now();
          await trimInbox(pool, name);
        }
        if (performance.now() - replayMs > replayEveryMs) {
          replayMs = performance.now();
          const { applied, failedKeys } = await replayDeadLetters(pool, name, handle, 'asked');
          if (applied > 0 || failedKeys.length > 0)
            log.info({ consumer: name, applied, failedKeys }, 'events were replayed');
        }
      } catch (error) {
        at = undefined;
        if (error instanceof CursorConflict) await pause(pollMs.max * Math.random());
        else if (!stopping && !isCancelled(error)) {
          troubleSinceMs ??= performance.now();
          if (failures === 0) log.warn({ err: error, consumer: name }, 'events cannot be applied now, trying again');
          await pause(Math.min(retryMs.max, retryMs.min * 2 ** Math.min(failures++, 10)));
        }
      }
    }
  };

  const lag: Check = async () => {
    const aside = describeDeadLetters(name, await countDeadLetters(pool, name));
    if (aside !== undefined) return degraded(aside);
    if (isBehind(troubleSinceMs)) return degraded('events cannot be applied');
    if (isBehind(oldestSinceMs, behindMs + (sweepAfterMs ?? 0))) return degraded('events are behind');
    if (stalledMs > behindMs) return degraded('events are held back by a long transaction');
    if (sweptMs !== undefined && performance.now() - sweptMs < sweptSeenMs)
      return degraded('Kafka did not bring all events; they came from the outbox');
    return healthy;
  };

  const running = run();
  const wake = () => {
    impatient = true;
    waiting?.abort();
    awake.notify();
  };
  return {
    stop: async () => {
      stopping = true;
      wake();
      await running;
    },
    wake,
    lag,
    failed: new Promise<never>(() => {}),
  };
}

/** The part of what was read that is old enough, and where it ends. */
function ripe(found: ReadResponse, at: Position, sweepAfterMs: number): { events: Event[]; next: Position } {
  const young = found.events.findIndex((event) => ageMs(found, event) < sweepAfterMs);
  if (young === -1) return { events: found.events, next: found.next ?? at };
  const events = found.events.slice(0, young);
  return { events, next: events.at(-1)?.position ?? at };
}

const isCancelled = (error: unknown) => error instanceof ServiceError && error.code === 'CANCELLED';
