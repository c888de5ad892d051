import type { QueryConfig, QueryResult } from 'pg';
import { ServiceError } from '../errors';
import type { CancelSignal } from '../grpc/cancellation';
import { sqlState } from './errors';
import type { Connection, Pool } from './pool';

/** A statement as it goes to pg. */
export type Statement = QueryConfig;

/**
 * Runs a statement on a connection of `pool`, and has Postgres cancel it when the signal is aborted; the request to cancel
 * goes over `cancelling`, which must not be busy with such statements itself. Throws CANCELLED for an aborted signal.
 */
export async function queryUntilAborted(
  pool: Pool,
  cancelling: Pool,
  signal: CancelSignal,
  statement: Statement,
): Promise<QueryResult> {
  if (signal.aborted) throw cancelled();
  const connection = await pool.connect();
  let isCancelled: Promise<boolean> | undefined;
  const cancel = () => {
    isCancelled = cancelStatement(cancelling, connection);
  };
  signal.addEventListener('abort', cancel, { once: true });
  let isUsable = true;
  try {
    if (signal.aborted) throw cancelled();
    return await connection.query(statement);
  } catch (error) {
    throw signal.aborted && sqlState(error) === queryCanceled ? cancelled(error) : error;
  } finally {
    signal.removeEventListener('abort', cancel);
    // A request that is still under way could cancel the next statement of this connection.
    if (isCancelled) isUsable = await isCancelled;
    connection.release(!isUsable);
  }
}

const queryCanceled = '57014';

/** Whether the request is known to have been carried out by now. */
async function cancelStatement(cancelling: Pool, connection: Connection): Promise<boolean> {
  const { processID } = connection as Connection & { processID: number };
  return cancelling.query('select pg_cancel_backend($1)', [processID]).then(
    () => true,
    () => false,
  );
}

const cancelled = (cause?: unknown) =>
  new ServiceError('CANCELLED', 'CANCELLED', 'The request was cancelled', { cause });
