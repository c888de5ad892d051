import { Backoff } from '../concurrency/backoff';
import { ServiceError } from '../errors';
import type { Event } from '../gen/granary/events/v1/Event';
import type { OutboxDefinition } from '../gen/granary/events/v1/Outbox';
import type { Logger } from '../logger';
import { fromPostgres, isConnectionError } from '../postgres/errors';
import type { Connection, Pool } from '../postgres/pool';
import { CommitUnknownError, transaction } from '../postgres/transaction';
import { newCall, type Client } from '../rpc/types';
import type { EventVerifier } from '../trust/event-signature';
import { applyEvents, CursorConflict, deadLetterFailed, GapError, PoisonEvent, type Gap, type Handle } from './inbox';
import { recordRefused, toRefused } from './refused';

/** The means to verify the events of a consumer and to record those that its publisher has not signed. */
interface Verification {
  pool: Pool;
  log: Logger;
  /** The name of the consumer. */
  name: string;
  verifier: EventVerifier;
}

export interface ApplierOptions<Cursor> extends Verification {
  /** The outbox that missing events are fetched from. */
  source: Client<OutboxDefinition>;
  handle: Handle;
  /** How often an event that fails for an unknown reason is tried before it is dead-lettered. */
  attempts: number;
  /**
   * Locks the consumer's cursor and moves it, at the start of a transaction that applies the events between the two.
   */
  move: (tx: Connection, from: Cursor, to: Cursor) => Promise<void>;
  /** Waits between attempts; less when the consumer is to stop. */
  pause: (ms: number) => Promise<void>;
}

/** An event, and the consumer's cursor after it. */
export interface EventStep<Cursor> {
  event: Event;
  to: Cursor;
}

/** Events that are fetched or applied at a time. */
export const batchEvents = 200;
export const readTimeoutMs = 5_000;

/**
 * Applies events in batches: the effects of a batch and the move of the consumer's cursor are one transaction. If a
 * batch fails, its events are applied one by one, and those that keep failing are dead-lettered. Throws only temporary
 * errors, after which the same batch may be retried.
 */
export class EventApplier<Cursor> {
  constructor(private readonly options: ApplierOptions<Cursor>) {}

  /**
   * Applies the events of the steps, at least one, and moves the cursor to `next`, which may lie beyond the last of
   * them. Once `isOver()` it throws a CursorConflict before the next event.
   */
  async apply(
    steps: ReadonlyArray<EventStep<Cursor>>,
    from: Cursor,
    next: Cursor,
    isOver: () => boolean,
  ): Promise<void> {
    const events = steps.map((step) => step.event);
    try {
      return await this.applyTogether(events, from, next);
    } catch (error) {
      if (isTemporary(error)) throw error;
    }
    let here = from;
    for (const [index, { event, to }] of steps.entries()) {
      const end = index === steps.length - 1 ? next : to;
      await this.applyOne(event, here, end, isOver);
      here = end;
    }
  }

  private advance(events: readonly Event[], from: Cursor, to: Cursor): Promise<void> {
    const { pool, name, handle, move } = this.options;
    return transaction(pool, async (tx) => {
      await move(tx, from, to);
      await applyEvents(tx, name, events, handle);
    });
  }

  /** Applies events in one transaction, together with events that are missing between them if these are few. */
  private async applyTogether(events: readonly Event[], from: Cursor, to: Cursor): Promise<void> {
    try {
      await this.advance(events, from, to);
    } catch (error) {
      if (!(error instanceof GapError) || error.size > batchEvents) throw error;
      const missing = (await Promise.all(error.gaps.map((gap) => this.readGap(gap)))).flat();
      await this.advance([...missing, ...events], from, to);
    }
  }

  /** Applies one event, or dead-letters it. */
  private async applyOne(event: Event, from: Cursor, to: Cursor, isOver: () => boolean): Promise<void> {
    const { attempts, pause } = this.options;
    const backoff = new Backoff({ firstMs: 400, maxMs: 10_000 });
    let failure: unknown;
    while (backoff.failures < attempts && !(failure instanceof PoisonEvent)) {
      if (isOver()) throw new CursorConflict('stopped');
      try {
        return await this.advance([event], from, to);
      } catch (error) {
        if (isTemporary(error)) throw error;
        failure = error;
        const pauseMs = backoff.nextMs();
        if (error instanceof GapError) await this.fillGap(error.gaps[0]!, from, isOver);
        if (backoff.failures < attempts && !(error instanceof PoisonEvent)) await pause(pauseMs);
      }
    }
    await this.deadLetter(event, from, to, failure, backoff.failures);
  }

  private async deadLetter(event: Event, from: Cursor, to: Cursor, failure: unknown, attempts: number): Promise<void> {
    const { pool, log, name, move } = this.options;
    const { id, topic, type, aggregateId } = event;
    log.error({ err: failure, consumer: name, event: { id, topic, type, aggregateId } }, 'an event was dead-lettered');
    await transaction(pool, async (tx) => {
      await move(tx, from, to);
      await deadLetterFailed(tx, name, event, String(failure), attempts);
    });
  }

  /** The first of the missing events, as far as the outbox has them. */
  private async readGap({ event, lastSequence }: Gap): Promise<Event[]> {
    const { source, name } = this.options;
    const { topic, aggregateId } = event;
    const { events } = await source.readAggregate(
      { topic, aggregateId, afterSequence: lastSequence.toString(), limit: batchEvents, consumer: name },
      newCall(`bus:${name}`, readTimeoutMs),
    );
    const signed = await signedOnly(this.options, events);
    return signed.filter((found) => BigInt(found.aggregateSequence) < BigInt(event.aggregateSequence));
  }

  /** Applies all missing events, one by one. */
  private async fillGap({ event, lastSequence }: Gap, here: Cursor, isOver: () => boolean): Promise<void> {
    for (let last = lastSequence; ;) {
      const events = await this.readGap({ event, lastSequence: last });
      for (const missing of events) await this.applyOne(missing, here, here, isOver);
      if (events.length === 0) return;
      last = BigInt(events.at(-1)!.aggregateSequence);
    }
  }
}

const temporaryCodes = new Set(['UNAVAILABLE', 'DEADLINE_EXCEEDED', 'ABORTED', 'CANCELLED', 'RESOURCE_EXHAUSTED']);

/** Whether an error says nothing about the event: the same batch may succeed later. */
function isTemporary(error: unknown): boolean {
  if (error instanceof CursorConflict || error instanceof CommitUnknownError || isConnectionError(error)) return true;
  const serviceError = error instanceof ServiceError ? error : fromPostgres(error);
  return serviceError !== undefined && temporaryCodes.has(serviceError.code);
}

/** The events that their publisher has signed; the others are recorded for an operator to examine. */
export async function signedOnly(
  { pool, log, name, verifier }: Verification,
  events: readonly Event[],
): Promise<Event[]> {
  const signed: Event[] = [];
  const forged: Event[] = [];
  for (const event of events) (verifier.isSigned(event) ? signed : forged).push(event);
  await recordRefused(pool, log, name, forged.map(toRefused));
  return signed;
}
