import { ServiceError } from '../errors';
import { isRetryable } from '../postgres/errors';
import { execute, type Queryable } from '../postgres/pool';
import { sql } from '../postgres/sql';
import { counting, findAnswer } from './answers';
import type { IdempotencyKey } from './key';

export const REQUEST_IN_PROGRESS = 'REQUEST_IN_PROGRESS';

/** An answer that says whether it was given before. */
interface Replayable {
  replayed?: boolean;
}

/**
 * Makes a change once per Idempotency-Key, in the transaction of the change; without a key every time. A repeated
 * request gets the answer of the first, as `kept` returns it (without a secret), and one that arrives while the first
 * is still running waits for it. A change that throws is rolled back with its key. Throws IDEMPOTENCY_KEY_REUSED for
 * other content, REQUEST_IN_PROGRESS when the first takes too long, and TOO_MANY_REQUESTS beyond what is kept of an
 * app.
 */
export async function once<T extends Replayable>(
  tx: Queryable,
  key: IdempotencyKey | undefined,
  change: () => Promise<T>,
  kept: (answer: T) => T = (answer) => answer,
): Promise<T> {
  if (!key) return change();
  const existing = await findAnswer(tx, key);
  // A row of another request that commits in between is waited for.
  const answer = existing ?? ((await claim(tx, key)) ? undefined : await findAnswer(tx, key));
  if (answer !== undefined) return { ...(JSON.parse(answer, reviveBytes) as T), replayed: true };
  const made = await change();
  const text = JSON.stringify(withBytesAsText(kept(made)));
  // Counted at the end: until then other requests of the owner do not wait for this one.
  await execute(
    tx,
    sql`with kept as (
          update idempotency set answer = ${text}
          where caller = ${key.caller} and key = ${key.key} and method = ${key.method} and path = ${key.path}
          returning (old.answer = '')::int as keys, octet_length(new.answer) - octet_length(old.answer) as bytes),
        ${counting(key)}`,
  );
  return made;
}

/**
 * Inserts the row of the key before the change, so that a second request waits here. An expired answer stays in the
 * row, to be counted, until the new one replaces it. False: another request has answered meanwhile.
 */
async function claim(tx: Queryable, key: IdempotencyKey): Promise<boolean> {
  try {
    const claimed = await execute(
      tx,
      sql`insert into idempotency as i (caller, method, path, key, content_hash, answer, at)
          values (${key.caller}, ${key.method}, ${key.path}, ${key.key}, ${key.contentHash}, '', now())
          on conflict (caller, key, method, path) do update set content_hash = excluded.content_hash, at = excluded.at
            where i.at <= now() - interval '24 hours'`,
    );
    return claimed === 1;
  } catch (error) {
    if (!isRetryable(error)) throw error;
    throw requestInProgress({ cause: error });
  }
}

export const requestInProgress = (options?: { cause: unknown }): ServiceError =>
  new ServiceError('ABORTED', REQUEST_IN_PROGRESS, 'A request with the same Idempotency-Key is still running', options);

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
