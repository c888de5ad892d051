import { ServiceError } from '../errors';
import { row, type Queryable } from '../postgres/pool';
import { sql, type Sql } from '../postgres/sql';
import { ownerOf, type IdempotencyKey } from './key';

export const IDEMPOTENCY_KEY_REUSED = 'IDEMPOTENCY_KEY_REUSED';

/** Limits of what is kept of one owner: keys (that is 115 a second for 24 hours), and bytes of answers. */
export const keptKeysMax = 10_000_000;
export const keptBytesMax = 1024 ** 3;

interface Found {
  content_hash: Buffer | null;
  answer: string | null;
  is_full: boolean | null;
}

/**
 * The answer kept under a key. Throws IDEMPOTENCY_KEY_REUSED when it was kept for another content, and
 * TOO_MANY_REQUESTS when there is none and no more may be kept of this owner.
 */
export async function findAnswer(db: Queryable, key: IdempotencyKey): Promise<string | undefined> {
  const entry = (await row<Found>(
    db,
    sql`select i.content_hash, i.answer, u.keys >= ${keptKeysMax} or u.answer_bytes >= ${keptBytesMax} as is_full
        from (values (1)) one
        left join idempotency i on ${isUnder(key)}
        left join idempotency_usage u on u.owner = ${ownerOf(key)}`,
  ))!;
  if (entry.answer === null) {
    if (entry.is_full === true) throw tooManyKeys();
    return undefined;
  }
  if (entry.content_hash!.equals(key.contentHash)) return entry.answer;
  throw keyReused();
}

export const keyReused = (): ServiceError =>
  new ServiceError('INVALID_ARGUMENT', IDEMPOTENCY_KEY_REUSED, 'The Idempotency-Key was used for another request');

/** Whether an answer is kept under a key, for whatever content. */
export async function isAnswerKept(db: Queryable, key: Omit<IdempotencyKey, 'contentHash'>): Promise<boolean> {
  return (await row(db, sql`select from idempotency i where ${isUnder(key)}`)) !== undefined;
}

/** The condition that the row `i` holds the answer that is kept under a key. */
const isUnder = ({ caller, key, method, path }: Omit<IdempotencyKey, 'contentHash'>): Sql =>
  sql`i.caller = ${caller} and i.key = ${key} and i.method = ${method} and i.path = ${path}
          and i.at > now() - interval '24 hours'`;

export function tooManyKeys(): ServiceError {
  const message = `An app may use an Idempotency-Key ${keptKeysMax} times in 24 hours, for ${keptBytesMax} bytes of answers`;
  return new ServiceError('RESOURCE_EXHAUSTED', 'TOO_MANY_REQUESTS', message);
}

/**
 * Keeps an answer, in the transaction of a change that has locked its app: `findAnswer` has found none under the key.
 * One row where nothing was kept under it for 24 hours.
 */
export const keepingAnswer = (key: IdempotencyKey, answer: string): Sql =>
  sql`with kept as (
        insert into idempotency as i (caller, method, path, key, content_hash, answer, at)
        values (${key.caller}, ${key.method}, ${key.path}, ${key.key}, ${key.contentHash}, ${answer}, now())
        on conflict (caller, key, method, path) do update
          set content_hash = excluded.content_hash, answer = excluded.answer, at = excluded.at
          where i.at <= now() - interval '24 hours'
        returning (old.answer is null)::int as keys, octet_length(new.answer) - coalesce(octet_length(old.answer), 0) as bytes),
      ${counting(key)}`;

/** Counts the row of `kept`, and returns it. */
export const counting = (key: IdempotencyKey): Sql =>
  sql`counted as (
        insert into idempotency_usage as u (owner, keys, answer_bytes)
        select ${ownerOf(key)}, keys, bytes from kept
        on conflict (owner) do update set keys = u.keys + excluded.keys, answer_bytes = u.answer_bytes + excluded.answer_bytes)
      select from kept`;
