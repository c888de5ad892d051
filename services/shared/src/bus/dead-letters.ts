import type { Event } from '../gen/granary/events/v1/Event';
import { execute, row, rows, type Connection, type Pool } from '../postgres/pool';
import { empty, sql } from '../postgres/sql';
import { retriedTransaction } from '../postgres/transaction';
import { applyDeadLetter, holdConsumer, type Handle } from './inbox';
import { start } from './position';

/**
 * How many events a consumer has dead-lettered or parked behind those, the age of the oldest, and how many messages it
 * has refused.
 */
export interface DeadLetterCounts {
  events: number;
  oldestMs: number;
  refused: number;
}

export async function countDeadLetters(pool: Pool, consumer: string): Promise<DeadLetterCounts> {
  const counts = await row<DeadLetterCounts>(
    pool,
    sql`select count(*)::int as events,
        coalesce(extract(epoch from clock_timestamp() - min(created_at)) * 1000, 0)::float8 as "oldestMs",
        (select count(*)::int from refused_event where consumer = ${consumer}) as refused
      from dead_letter where consumer = ${consumer}`,
  );
  return counts!;
}

/** A sentence for health; undefined when there are none. */
export function describeDeadLetters(consumer: string, counts: DeadLetterCounts): string | undefined {
  const parts: string[] = [];
  const seconds = Math.round(counts.oldestMs / 1_000);
  if (counts.events > 0)
    parts.push(
      `${counts.events} events of ${consumer} failed or wait behind one that did, the oldest for ${seconds} s`,
    );
  if (counts.refused > 0)
    parts.push(`${counts.refused} messages to ${consumer} were refused, not signed by their publisher`);
  return parts.length > 0 ? parts.join('; ') : undefined;
}

interface DeadLetterRow {
  number: bigint;
  event_id: string;
  topic: string;
  key: string;
  agg_id: string;
  agg_seq: bigint;
  type: string;
  payload: string;
  at: Date;
}

function toEvent(deadLetter: DeadLetterRow): Event {
  return {
    position: start,
    id: deadLetter.event_id,
    topic: deadLetter.topic,
    key: deadLetter.key,
    aggregateId: deadLetter.agg_id,
    aggregateSequence: deadLetter.agg_seq.toString(),
    type: deadLetter.type,
    payload: Buffer.from(deadLetter.payload),
    at: deadLetter.at.toISOString(),
    // It was verified before it was dead-lettered.
    signatures: '',
  };
}

/**
 * Applies the dead letters of a consumer, or only those of keys whose replay was requested, each in its own
 * transaction, in order within their key. May run beside the consumer, and any number of times. A key whose next event
 * still fails stays parked.
 */
export async function replayDeadLetters(
  pool: Pool,
  consumer: string,
  handle: Handle,
  which: 'all' | 'requested' = 'all',
): Promise<{ applied: number; failedKeys: string[] }> {
  const keys = await rows<{ key: string }>(
    pool,
    sql`select key from dead_letter where consumer = ${consumer}
      ${which === 'requested' ? sql`and key in (select key from dead_letter where consumer = ${consumer} and replay_asked)` : empty}
      group by key order by min(number)`,
  );
  const failedKeys: string[] = [];
  let applied = 0;
  for (const { key } of keys) {
    try {
      while (await retriedTransaction(pool, (tx) => replayNext(tx, consumer, key, handle))) applied++;
    } catch (error) {
      failedKeys.push(key);
      await retriedTransaction(pool, async (tx) => {
        await execute(
          tx,
          sql`update dead_letter set error = ${String(error)}, attempts = attempts + 1
            where number = (select min(number) from dead_letter where consumer = ${consumer} and key = ${key})`,
        );
        await execute(
          tx,
          sql`update dead_letter set replay_asked = false where consumer = ${consumer} and key = ${key} and replay_asked`,
        );
      });
    }
  }
  return { applied, failedKeys };
}

/** False when the key has no more events. */
async function replayNext(tx: Connection, consumer: string, key: string, handle: Handle): Promise<boolean> {
  // Otherwise the consumer could apply an event of the key between the last replay and the end of parking.
  await holdConsumer(tx, consumer);
  const next = await row<DeadLetterRow>(
    tx,
    sql`select number, event_id, topic, key, agg_id, agg_seq, type, payload, at from dead_letter
      where consumer = ${consumer} and key = ${key} order by number limit 1`,
  );
  if (!next) return false;
  await applyDeadLetter(tx, consumer, toEvent(next), handle);
  await execute(tx, sql`delete from dead_letter where number = ${next.number}`);
  return true;
}
