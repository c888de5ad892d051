import { execute, rows, type Queryable } from '../postgres/pool';
import { join, sql, type Sql } from '../postgres/sql';

/** Which of the events that were put aside are meant; absent: all. */
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
  /** Of the first event: what went wrong, and how often it was tried. */
  type: string;
  error: string | null;
  attempts: number;
  /** A replay was asked for and has not been tried yet. */
  replayAsked: boolean;
}

function where({ consumer, key }: DeadLetterFilter): Sql {
  const conditions = [sql`true`];
  if (consumer !== undefined) conditions.push(sql`consumer = ${consumer}`);
  if (key !== undefined) conditions.push(sql`key = ${key}`);
  return join(conditions, ' and ');
}

/** What consumers have put aside in this database, oldest first. */
export function listParkedKeys(db: Queryable, filter: DeadLetterFilter): Promise<ParkedKey[]> {
  return rows<ParkedKey>(
    db,
    sql`select consumer, key, count(*)::int as events, to_char(min(created_at) at time zone 'utc', 'YYYY-MM-DD"T"HH24:MI:SS"Z"') as since, bool_or(replay_asked) as "replayAsked",
        (array_agg(type order by number))[1] as type, (array_agg(error order by number))[1] as error,
        (array_agg(attempts order by number))[1] as attempts
      from dead_letter where ${where(filter)} group by consumer, key order by min(number)`,
  );
}

/**
 * Asks the consumers to apply what they have put aside; the running service does so within a second or two, because it
 * alone has all that its handlers need. Answers how many events that is.
 */
export function askForReplay(db: Queryable, filter: DeadLetterFilter): Promise<number> {
  return execute(db, sql`update dead_letter set replay_asked = true where ${where(filter)}`);
}
