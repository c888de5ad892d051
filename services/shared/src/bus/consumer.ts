import { ServiceError } from '../errors';
import type { Event } from '../gen/granary/events/v1/Event';
import type { OutboxDefinition } from '../gen/granary/events/v1/Outbox';
import type { Position } from '../gen/granary/events/v1/Position';
import type { ReadResponse } from '../gen/granary/events/v1/ReadResponse';
import { newCall, type Client } from '../grpc/types';
import { healthy, type Check, type Finding } from '../health';
import type { Logger } from '../logger';
import { fromPostgres, isConnectionError } from '../postgres/errors';
import type { Pool } from '../postgres/pool';
import { CommitUnknownError, transaction } from '../postgres/transaction';
import { countDeadLetters } from './dead-letters';
import {
  applyEvents,
  bury,
  CursorMoved,
  GapError,
  loadCursor,
  moveCursor,
  PoisonEvent,
  trimInbox,
  type Gap,
  type Handle,
} from './inbox';
import { samePosition } from './position';
import { createSignal } from './signal';

export interface ConsumerOptions {
  pool: Pool;
  log: Logger;
  /** Its place, its inbox and what it put aside are kept under this name; one consumer reads one source. */
  name: string;
  /** The outbox that it reads, of a service in this process or elsewhere. */
  source: Client<OutboxDefinition>;
  topics: string[];
  handle: Handle;
  /** Bounds of the wait between two looks when nothing comes. */
  pollMs?: { min: number; max: number };
  /** How often an event that fails for no known reason is tried before it is put aside. */
  attempts?: number;
}

export interface Consumer {
  /** Lets what is under way end. */
  stop(): Promise<void>;
  /** For health: degraded when it is behind, cannot read, or has put events aside. */
  lag: Check;
  /** Looks at once. */
  wake(): void;
}

const batchEvents = 200;
const readTimeoutMs = 5_000;
const retryMs = { min: 100, max: 2_000 };
/** From here on being behind is worth a word in health. */
const behindMs = 5_000;
const trimEveryMs = 60_000;

/**
 * Applies the events of a source, each exactly once whatever is killed when: its effects, its entry in the inbox and
 * the consumer's place are one transaction. Any number of copies may run; one of them gets on at a time.
 */
export function startConsumer(options: ConsumerOptions): Consumer {
  const { pool, log, name, source, topics, handle, pollMs = { min: 50, max: 200 }, attempts = 5 } = options;
  const awake = createSignal();
  let stopping = false;
  let impatient = false;
  let waiting: AbortController | undefined;
  let troubleSinceMs: number | undefined;
  let oldestAtMs: number | undefined;
  let stalledMs = 0;

  const pause = (ms: number) => (stopping ? Promise.resolve() : awake.wait(ms));

  const read = (after: Position, waitMs: number): Promise<ReadResponse> => {
    waiting = waitMs > 0 ? new AbortController() : undefined;
    const call = {
      requestId: `bus:${name}`,
      deadlineMs: Date.now() + waitMs + readTimeoutMs,
      signal: (waiting ?? new AbortController()).signal,
    };
    return source.read({ consumer: name, after, limit: batchEvents, topics, waitMs }, call);
  };

  const advance = (events: readonly Event[], from: Position, to: Position) =>
    transaction(pool, async (tx) => {
      await moveCursor(tx, name, from, to);
      await applyEvents(tx, name, events, handle);
    });

  /** The first of the events that a gap stands for, as far as the outbox has them. */
  const readGap = async ({ event, lastSequence }: Gap): Promise<Event[]> => {
    const { topic, aggregateId } = event;
    const { events } = await source.readAggregate(
      { topic, aggregateId, afterSequence: lastSequence.toString(), limit: batchEvents },
      newCall(`bus:${name}`, readTimeoutMs),
    );
    return events.filter((found) => BigInt(found.aggregateSequence) < BigInt(event.aggregateSequence));
  };

  /** Applies all of them, each on its own. */
  const fillGap = async ({ event, lastSequence }: Gap, here: Position): Promise<void> => {
    for (let last = lastSequence; ;) {
      const events = await readGap({ event, lastSequence: last });
      for (const missing of events) await applyOne(missing, here, here);
      if (events.length === 0) return;
      last = BigInt(events.at(-1)!.aggregateSequence);
    }
  };

  /** Applies events together, with those of the outbox that are missing between them if they are few. */
  const applyTogether = async (events: readonly Event[], from: Position, to: Position): Promise<void> => {
    try {
      await advance(events, from, to);
    } catch (error) {
      if (!(error instanceof GapError) || error.size > batchEvents) throw error;
      const missing = (await Promise.all(error.gaps.map(readGap))).flat();
      await advance([...missing, ...events], from, to);
    }
  };

  /** Applies one event or, if that cannot be done, puts it aside. Throws only what passes by itself. */
  const applyOne = async (event: Event, from: Position, to: Position): Promise<void> => {
    let failure: unknown;
    let attempt = 0;
    while (attempt < attempts && !(failure instanceof PoisonEvent)) {
      if (attempt > 0) await pause(retryMs.min * 2 ** attempt);
      if (stopping) throw new CursorMoved('stopped');
      try {
        return await advance([event], from, to);
      } catch (error) {
        if (isTemporary(error)) throw error;
        failure = error;
        attempt++;
        if (error instanceof GapError) await fillGap(error.gaps[0]!, from);
      }
    }
    const { id, topic, type, aggregateId } = event;
    log.error({ err: failure, consumer: name, event: { id, topic, type, aggregateId } }, 'an event was put aside');
    await transaction(pool, async (tx) => {
      await moveCursor(tx, name, from, to);
      await bury(tx, name, event, String(failure), attempt);
    });
  };

  const consume = async (events: readonly Event[], from: Position, next: Position): Promise<void> => {
    try {
      return await applyTogether(events, from, next);
    } catch (error) {
      if (isTemporary(error)) throw error;
    }
    let here = from;
    for (const event of events) {
      const to = event.position!;
      await applyOne(event, here, to);
      here = to;
    }
    if (!samePosition(here, next)) await advance([], here, next);
  };

  const run = async () => {
    let at: Position | undefined;
    let idleMs = 0;
    let failures = 0;
    let trimmedMs = Date.now();
    while (!stopping) {
      try {
        at ??= await loadCursor(pool, name);
        const waitMs = impatient ? 0 : idleMs;
        impatient = false;
        const found = await read(at, waitMs);
        stalledMs = Number(found.stalledMs);
        const next = found.next ?? at;
        if (!samePosition(next, at)) {
          oldestAtMs = found.events[0] ? Date.parse(found.events[0].at) : undefined;
          await consume(found.events, at, next);
          at = next;
          idleMs = 0;
        } else {
          oldestAtMs = undefined;
          idleMs = stalledMs > 0 ? pollMs.min : Math.min(pollMs.max, Math.max(pollMs.min, idleMs * 2));
        }
        failures = 0;
        troubleSinceMs = undefined;
        if (Date.now() - trimmedMs > trimEveryMs) {
          trimmedMs = Date.now();
          await trimInbox(pool, name);
        }
      } catch (error) {
        at = undefined;
        if (error instanceof CursorMoved) await pause(pollMs.max * Math.random());
        else if (!stopping && !isCancelled(error)) {
          troubleSinceMs ??= Date.now();
          if (failures === 0) log.warn({ err: error, consumer: name }, 'events cannot be applied now, trying again');
          await pause(Math.min(retryMs.max, retryMs.min * 2 ** Math.min(failures++, 10)));
        }
      }
    }
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
    lag: async () => {
      const aside = await countDeadLetters(pool, name);
      if (aside > 0) return degraded(`${aside} events of ${name} were put aside`);
      if (troubleSinceMs !== undefined && Date.now() - troubleSinceMs > behindMs)
        return degraded('events cannot be applied');
      if (oldestAtMs !== undefined && Date.now() - oldestAtMs > behindMs) return degraded('events are behind');
      if (stalledMs > behindMs) return degraded('events are held back by a long transaction');
      return healthy;
    },
  };
}

const degraded = (message: string): Finding => ({ status: 'DEGRADED', message });

const isCancelled = (error: unknown) => error instanceof ServiceError && error.code === 'CANCELLED';

const passing = new Set(['UNAVAILABLE', 'DEADLINE_EXCEEDED', 'ABORTED', 'CANCELLED', 'RESOURCE_EXHAUSTED']);

/** Whether an error says nothing about the event: it goes away by itself, and the same is then tried again. */
function isTemporary(error: unknown): boolean {
  if (error instanceof CursorMoved || error instanceof CommitUnknownError || isConnectionError(error)) return true;
  const known = error instanceof ServiceError ? error : fromPostgres(error);
  return known !== undefined && passing.has(known.code);
}
