import { ServiceError } from '@granary/shared/errors';
import type { Idempotency } from '@granary/shared/gen/granary/data/v1/Idempotency';
import { isRetryable } from '@granary/shared/postgres/errors';
import { execute, row, type Pool, type Queryable } from '@granary/shared/postgres/pool';
import { sql, type Sql } from '@granary/shared/postgres/sql';

export const IDEMPOTENCY_KEY_REUSED = 'IDEMPOTENCY_KEY_REUSED';
export const REQUEST_IN_PROGRESS = 'REQUEST_IN_PROGRESS';

/** An Idempotency-Key with who used it for what, and the hash of what was sent. */
export interface IdempotencyKey {
  caller: string;
  method: string;
  path: string;
  key: string;
  contentHash: Buffer;
}

/** The key of a message, undefined when the caller sent none. */
export function toIdempotencyKey(message: Idempotency | null | undefined): IdempotencyKey | undefined {
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

/** Keeps an answer, in the transaction of the change. One row where nothing was kept under the key for 24 hours. */
export const keepingAnswer = (key: IdempotencyKey, answer: string): Sql =>
  sql`insert into idempotency as i (caller, method, path, key, content_hash, answer, at)
        values (${key.caller}, ${key.method}, ${key.path}, ${key.key}, ${key.contentHash}, ${answer}, now())
        on conflict (caller, key, method, path) do update
          set content_hash = excluded.content_hash, answer = excluded.answer, at = excluded.at
          where i.at <= now() - interval '24 hours'`;

/** An answer that says whether it was given before. */
interface Replayable {
  replayed?: boolean;
}

/**
 * Makes a change once per Idempotency-Key, in the transaction of the change; without a key every time. A repeated request
 * gets the answer of the first, as `kept` returns it (without a secret), and one that arrives while the first is still
 * running waits for it. A change that throws is rolled back with its key. Throws IDEMPOTENCY_KEY_REUSED for other content, and
 * REQUEST_IN_PROGRESS when the first takes too long.
 */
export async function once<T extends Replayable>(
  tx: Queryable,
  key: IdempotencyKey | undefined,
  change: () => Promise<T>,
  kept: (answer: T) => T = (answer) => answer,
): Promise<T> {
  if (!key) return change();
  if (!(await claim(tx, key))) {
    const answer = (await findAnswer(tx, key))!;
    return { ...(JSON.parse(answer, reviveBytes) as T), replayed: true };
  }
  const answer = await change();
  await execute(
    tx,
    sql`update idempotency set answer = ${JSON.stringify(withBytesAsText(kept(answer)))}
        where caller = ${key.caller} and key = ${key.key} and method = ${key.method} and path = ${key.path}`,
  );
  return answer;
}

/** The row of the key comes before the change, so that a second request waits here. False: it has an answer. */
async function claim(tx: Queryable, key: IdempotencyKey): Promise<boolean> {
  try {
    return (await execute(tx, keepingAnswer(key, ''))) === 1;
  } catch (error) {
    if (!isRetryable(error)) throw error;
    const message = 'A request with the same Idempotency-Key is still running';
    throw new ServiceError('ABORTED', REQUEST_IN_PROGRESS, message, { cause: error });
  }
}

/** An answer as JSON can hold it: bytes of messages are base64 in an object of their own. */
function withBytesAsText(value: unknown): unknown {
  if (Buffer.isBuffer(value)) return { [bytesMember]: value.toString('base64') };
  if (Array.isArray(value)) return value.map(withBytesAsText);
  if (typeof value !== 'object' || value === null) return value;
  return Object.fromEntries(Object.entries(value).map(([name, member]) => [name, withBytesAsText(member)]));
}

/** No field of a message has such a name. */
const bytesMember = '$bytes';

const reviveBytes = (_: string, value: unknown): unknown =>
  typeof value === 'object' && value !== null && bytesMember in value
    ? Buffer.from(String(value[bytesMember]), 'base64')
    : value;

/** Answers that one statement deletes, and such statements in one round. */
const trimRows = 1_000;
const trimRounds = 500;

/** Deletes answers older than 24 hours, a bounded number at a time. */
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
