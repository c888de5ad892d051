import { ServiceError } from '../errors';
import type { Event } from '../gen/granary/events/v1/Event';
import type { OutboxDefinition } from '../gen/granary/events/v1/Outbox';
import { newCall, type Client } from '../rpc/types';
import type { Logger } from '../logger';
import { fromPostgres, isConnectionError } from '../postgres/errors';
import type { Connection, Pool } from '../postgres/pool';
import { CommitUnknownError, transaction } from '../postgres/transaction';
import type { EventVerifier } from '../trust/event-signature';
import { applyEvents, deadLetterFailed, CursorConflict, GapError, PoisonEvent, type Gap, type Handle } from './inbox';
import { recordRefused, toRefused } from './refused';

export interface ApplierOptions<Place> {
  pool: Pool;
  log: Logger;
  /** Of the consumer. */
  name: string;
  /** Where events that are missing are fetched from. */
  source: Client<OutboxDefinition>;
  verifier: EventVerifier;
  handle: Handle;
  /** How often an event that fails for no known reason is tried before it is put aside. */
  attempts: number;
  /** Locks the consumer's place and moves it, at the beginning of a transaction that applies what lies between. */
  move: (tx: Connection, from: Place, to: Place) => Promise<void>;
  /** Waits between attempts; shorter when the consumer is to end. */
  pause: (ms: number) => Promise<void>;
}

/** An event, and the place of the consumer when it is done with it. */
export interface EventStep<Place> {
  event: Event;
  to: Place;
}

/** Events fetched or applied at a time. */
export const batchEvents = 200;
export const readTimeoutMs = 5_000;
const retryMinMs = 100;

/**
 * Applies events in batches, the effects of a batch and the consumer's place in one transaction. If a batch cannot be
 * applied, each event for itself; one that will not be right is put aside. Throws only what passes by itself, and
 * then the same batch may be tried again. `isOver` tells when to give up between two events, by a CursorConflict.
 */
export function createEventApplier<Place>(options: ApplierOptions<Place>) {
  const { pool, log, name, source, verifier, handle, attempts, move, pause } = options;

  const advance = (events: readonly Event[], from: Place, to: Place) =>
    transaction(pool, async (tx) => {
      await move(tx, from, to);
      await applyEvents(tx, name, events, handle);
    });

  /** The first of the events that a gap stands for, as far as the outbox has them. */
  const readGap = async ({ event, lastSequence }: Gap): Promise<Event[]> => {
    const { topic, aggregateId } = event;
    const { events } = await source.readAggregate(
      { topic, aggregateId, afterSequence: lastSequence.toString(), limit: batchEvents, consumer: name },
      newCall(`bus:${name}`, readTimeoutMs),
    );
    return (await signedOnly({ pool, log, name, verifier }, events)).filter(
      (found) => BigInt(found.aggregateSequence) < BigInt(event.aggregateSequence),
    );
  };

  /** Applies all of them, each on its own. */
  const fillGap = async ({ event, lastSequence }: Gap, here: Place, isOver: () => boolean): Promise<void> => {
    for (let last = lastSequence; ;) {
      const events = await readGap({ event, lastSequence: last });
      for (const missing of events) await applyOne(missing, here, here, isOver);
      if (events.length === 0) return;
      last = BigInt(events.at(-1)!.aggregateSequence);
    }
  };

  /** Applies events together, with those of the outbox that are missing between them if they are few. */
  const applyTogether = async (events: readonly Event[], from: Place, to: Place): Promise<void> => {
    try {
      await advance(events, from, to);
    } catch (error) {
      if (!(error instanceof GapError) || error.size > batchEvents) throw error;
      const missing = (await Promise.all(error.gaps.map(readGap))).flat();
      await advance([...missing, ...events], from, to);
    }
  };

  /** Applies one event or, if that cannot be done, puts it aside. */
  const applyOne = async (event: Event, from: Place, to: Place, isOver: () => boolean): Promise<void> => {
    let failure: unknown;
    let attempt = 0;
    while (attempt < attempts && !(failure instanceof PoisonEvent)) {
      if (attempt > 0) await pause(retryMinMs * 2 ** attempt);
      if (isOver()) throw new CursorConflict('stopped');
      try {
        return await advance([event], from, to);
      } catch (error) {
        if (isTemporary(error)) throw error;
        failure = error;
        attempt++;
        if (error instanceof GapError) await fillGap(error.gaps[0]!, from, isOver);
      }
    }
    const { id, topic, type, aggregateId } = event;
    log.error({ err: failure, consumer: name, event: { id, topic, type, aggregateId } }, 'an event was dead-lettered');
    await transaction(pool, async (tx) => {
      await move(tx, from, to);
      await deadLetterFailed(tx, name, event, String(failure), attempt);
    });
  };

  /** Applies the events of the steps, at least one, and ends at `next`, which may lie beyond the last of them. */
  return async (
    steps: ReadonlyArray<EventStep<Place>>,
    from: Place,
    next: Place,
    isOver: () => boolean,
  ): Promise<void> => {
    const events = steps.map((step) => step.event);
    try {
      return await applyTogether(events, from, next);
    } catch (error) {
      if (isTemporary(error)) throw error;
    }
    let here = from;
    for (const [at, { event, to }] of steps.entries()) {
      const end = at === steps.length - 1 ? next : to;
      await applyOne(event, here, end, isOver);
      here = end;
    }
  };
}

const passing = new Set(['UNAVAILABLE', 'DEADLINE_EXCEEDED', 'ABORTED', 'CANCELLED', 'RESOURCE_EXHAUSTED']);

/** Whether an error says nothing about the event: it goes away by itself, and the same is then tried again. */
function isTemporary(error: unknown): boolean {
  if (error instanceof CursorConflict || error instanceof CommitUnknownError || isConnectionError(error)) return true;
  const known = error instanceof ServiceError ? error : fromPostgres(error);
  return known !== undefined && passing.has(known.code);
}

/** Those of the events that their publisher has signed; the others are kept for a person to look at. */
export async function signedOnly(
  { pool, log, name, verifier }: Pick<ApplierOptions<unknown>, 'pool' | 'log' | 'name' | 'verifier'>,
  events: readonly Event[],
): Promise<Event[]> {
  const signed: Event[] = [];
  const forged: Event[] = [];
  for (const event of events) (verifier.isSigned(event) ? signed : forged).push(event);
  await recordRefused(pool, log, name, forged.map(toRefused));
  return signed;
}
