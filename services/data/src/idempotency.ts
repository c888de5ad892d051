import { ServiceError } from '@granary/shared/errors';
import type { Idempotency } from '@granary/shared/gen/granary/data/v1/Idempotency';
import { execute, row, type Pool, type Queryable } from '@granary/shared/postgres/pool';
import { sql, type Sql } from '@granary/shared/postgres/sql';

export const IDEMPOTENCY_KEY_REUSED = 'IDEMPOTENCY_KEY_REUSED';

/** An Idempotency-Key with who used it for what, and the hash of what was sent. */
export interface IdempotencyKey {
  caller: string;
  method: string;
  path: string;
  key: string;
  contentHash: Buffer;
}

/** The key of a message, undefined when the caller sent none. */
export function toIdempotencyKey(message: Idempotency | null): IdempotencyKey | undefined {
  if (!message || message.key === '') return undefined;
  const { caller, method, path, key, contentHash } = message;
  return { caller, method, path, key, contentHash: Buffer.from(contentHash) };
}

export const sameKey = (a: IdempotencyKey, b: IdempotencyKey): boolean =>
  a.key === b.key && a.caller === b.caller && a.method === b.method && a.path === b.path;

/** The answer kept under a key. Throws IDEMPOTENCY_KEY_REUSED when it was kept for another content. */
export async function findAnswer(db: Queryable, key: IdempotencyKey): Promise<string | undefined> {
  const found = await row<{ content_hash: Buffer; answer: string }>(
    db,
    sql`select content_hash, answer from idempotency
        where caller = ${key.caller} and key = ${key.key} and method = ${key.method} and path = ${key.path}
          and at > now() - interval '24 hours'`,
  );
  if (!found) return undefined;
  if (found.content_hash.equals(key.contentHash)) return found.answer;
  throw new ServiceError(
    'INVALID_ARGUMENT',
    IDEMPOTENCY_KEY_REUSED,
    'The Idempotency-Key was used for another request',
  );
}

/**
 * Keeps an answer, in the transaction of the change. Waits for another transaction that is keeping one under the
 * same key; gives false when that one was first.
 */
export async function keepAnswer(tx: Queryable, key: IdempotencyKey, answer: string, at: Date): Promise<boolean> {
  return (await execute(tx, keepingAnswer(key, answer, at))) === 1;
}

/** The statement of keepAnswer. */
export const keepingAnswer = (key: IdempotencyKey, answer: string, at: Date): Sql =>
  sql`insert into idempotency as i (caller, method, path, key, content_hash, answer, at)
        values (${key.caller}, ${key.method}, ${key.path}, ${key.key}, ${key.contentHash}, ${answer}, ${at})
        on conflict (caller, key, method, path) do update
          set content_hash = excluded.content_hash, answer = excluded.answer, at = excluded.at
          where i.at <= now() - interval '24 hours'`;

/** Answers that one statement forgets, and such statements in one round. */
const trimRows = 1_000;
const trimRounds = 500;

/** Forgets answers older than 24 hours, a bounded number at a time. */
export async function trimAnswers(pool: Pool): Promise<void> {
  for (let round = 0; round < trimRounds; round++) {
    const trimmed = await execute(
      pool,
      sql`delete from idempotency where ctid = any(array(
            select ctid from idempotency where at <= now() - interval '24 hours' limit ${trimRows}))`,
    );
    if (trimmed < trimRows) return;
  }
}
