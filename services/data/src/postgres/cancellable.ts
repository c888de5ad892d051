import { setTimeout as delay } from 'node:timers/promises';
import type { QueryConfig, QueryResult } from 'pg';
import { ServiceError } from '@granary/shared/errors';
import type { CancelSignal } from '@granary/shared/concurrency/cancellation';
import { cancelDeadline, startDeadline } from '@granary/shared/concurrency/deadlines';
import { sqlState } from '@granary/shared/postgres/errors';
import type { Connection, Pool } from '@granary/shared/postgres/pool';

/** A statement as it goes to pg. */
export type Statement = QueryConfig;

const queryCanceled = '57014';
/** Postgres ignores a request that comes before the statement, so it is repeated while the statement goes on. */
const cancelAgainAfterMs = 100;

/**
 * Runs a statement on a connection of `pool`, and has Postgres cancel it when the signal is aborted, or after
 * `timeoutMs` if that is less than the time that the pool gives its statements; the requests to cancel go over `fast`,
 * which must not be busy with such statements itself. Throws CANCELLED for an aborted signal, the error of Postgres for
 * a timeout.
 */
export async function queryUntilAborted(
  pool: Pool,
  fast: Pool,
  signal: CancelSignal,
  statement: Statement,
  timeoutMs?: number,
): Promise<QueryResult> {
  if (signal.aborted) throw cancelled();
  const connection = await pool.connect();
  const ended = new AbortController();
  let cancelling: Promise<boolean> | undefined;
  const cancel = () => {
    cancelling ??= cancelStatement(fast, connection, ended.signal);
  };
  signal.addEventListener('abort', cancel, { once: true });
  let isUsable = true;
  const deadline = timeoutMs === undefined ? undefined : startDeadline(timeoutMs, cancel);
  try {
    if (signal.aborted) throw cancelled();
    return await connection.query(statement);
  } catch (error) {
    throw signal.aborted && sqlState(error) === queryCanceled ? cancelled(error) : error;
  } finally {
    signal.removeEventListener('abort', cancel);
    if (deadline) cancelDeadline(deadline);
    ended.abort();
    // A request that is still under way could cancel the next statement of this connection.
    if (cancelling) isUsable = await cancelling;
    connection.release(!isUsable);
  }
}

/** Asks until the statement has ended. Returns whether every request is known to have been carried out by then. */
async function cancelStatement(fast: Pool, connection: Connection, ended: AbortSignal): Promise<boolean> {
  const { processID } = connection as Connection & { processID: number };
  let isCarriedOut = true;
  while (!ended.aborted) {
    await fast.query('select pg_cancel_backend($1)', [processID]).catch(() => (isCarriedOut = false));
    await delay(cancelAgainAfterMs, undefined, { signal: ended }).catch(() => {});
  }
  return isCarriedOut;
}

const cancelled = (cause?: unknown) =>
  new ServiceError('CANCELLED', 'CANCELLED', 'The request was cancelled', { cause });
