import { execute, row, rows, type Pool, type Queryable } from '../postgres/pool';
import { join, sql, type Sql } from '../postgres/sql';
import { retriedTransaction } from '../postgres/transaction';
import { holdConsumer, saveSequences } from './inbox';

/** Selects dead letters; absent: all. */
export interface DeadLetterFilter {
  consumer?: string | undefined;
  key?: string | undefined;
}

/** A key of a consumer that is parked. */
export interface ParkedKey {
  consumer: string;
  key: string;
  events: number;
  /** ISO 8601. */
  since: string;
  /** The type of the first event, its error, and how often it was tried. */
  type: string;
  error: string | null;
  attempts: number;
  /** A replay was requested and has not been tried yet. */
  replayRequested: boolean;
}

function where({ consumer, key }: DeadLetterFilter): Sql {
  const conditions = [sql`true`];
  if (consumer !== undefined) conditions.push(sql`consumer = ${consumer}`);
  if (key !== undefined) conditions.push(sql`key = ${key}`);
  return join(conditions, ' and ');
}

/** The keys with dead letters in this database, oldest first. */
export function listParkedKeys(db: Queryable, filter: DeadLetterFilter): Promise<ParkedKey[]> {
  return rows<ParkedKey>(
    db,
    sql`select consumer, key, count(*)::int as events, to_char(min(created_at) at time zone 'utc', 'YYYY-MM-DD"T"HH24:MI:SS"Z"') as since, bool_or(replay_asked) as "replayRequested",
        (array_agg(type order by number))[1] as type, (array_agg(error order by number))[1] as error,
        (array_agg(attempts order by number))[1] as attempts
      from dead_letter where ${where(filter)} group by consumer, key order by min(number)`,
  );
}

/**
 * Requests that consumers apply their dead letters. The running service does so within a second or two, because only it
 * has what its handlers need. Returns the number of events.
 */
export function requestReplay(db: Queryable, filter: DeadLetterFilter): Promise<number> {
  return execute(db, sql`update dead_letter set replay_asked = true where ${where(filter)}`);
}

/**
 * Discards the first event of a parked key: it counts as processed and never has an effect. Requests a replay of the
 * events that wait behind it. Returns the event, or undefined if the key is not parked.
 */
export async function skipFirst(
  pool: Pool,
  { consumer, key }: Required<DeadLetterFilter>,
): Promise<{ type: string; eventId: string } | undefined> {
  if (consumer === undefined || key === undefined) throw new TypeError('consumer and key are needed');
  return retriedTransaction(pool, async (tx) => {
    await holdConsumer(tx, consumer);
    const skipped = await row<{ id: string; topic: string; aggregate: string; sequence: bigint; type: string }>(
      tx,
      sql`delete from dead_letter where number = (select min(number) from dead_letter where consumer = ${consumer} and key = ${key})
        returning event_id as id, topic, agg_id as aggregate, agg_seq as sequence, type`,
    );
    if (!skipped) return undefined;
    const { id: eventId, topic, aggregate: aggregateId, sequence, type } = skipped;
    // Otherwise the next event of the aggregate would find a gap that nothing can fill.
    await saveSequences(tx, consumer, [{ topic, aggregateId, aggregateSequence: sequence.toString() }]);
    await requestReplay(tx, { consumer, key });
    return { type, eventId };
  });
}

/** A message that its publisher has not signed. */
export interface Refused {
  consumer: string;
  source: string;
  why: string;
  /** JSON of its headers, which are not verified. */
  about: string;
  /** ISO 8601. */
  since: string;
}

/** At most 100 messages that consumers have refused, newest first. */
export function listRefused(db: Queryable, { consumer }: DeadLetterFilter): Promise<Refused[]> {
  return rows<Refused>(
    db,
    sql`select consumer, source, why, about,
        to_char(created_at at time zone 'utc', 'YYYY-MM-DD"T"HH24:MI:SS"Z"') as since
      from refused_event where ${where({ consumer })} order by number desc limit 100`,
  );
}

/** Deletes refused messages; returns how many. */
export function discardRefused(db: Queryable, { consumer }: DeadLetterFilter): Promise<number> {
  return execute(db, sql`delete from refused_event where ${where({ consumer })}`);
}
