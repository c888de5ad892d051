import type { Connection, Pool } from './pool';
import { CommitUnknownError, isConnectionError, isRetryable } from './errors';

export { CommitUnknownError };

export interface TransactionOptions {
  isolation?: 'read committed' | 'repeatable read';
  readOnly?: boolean;
  /** Replaces the connection's own statement timeout for this transaction. */
  statementTimeoutMs?: number;
}

/**
 * Runs `work` in a transaction: the only place that says begin. Whatever `work` throws rolls back and is thrown
 * on. Throws CommitUnknownError when the connection broke after COMMIT was sent.
 */
export async function transaction<T>(
  pool: Pool,
  work: (tx: Connection) => Promise<T>,
  options: TransactionOptions = {},
): Promise<T> {
  const tx = await pool.connect();
  // Without a listener an error between two statements would end the process; the next statement reports it.
  const ignore = () => {};
  tx.on('error', ignore);
  let usable = true;
  try {
    await tx.query(
      `begin isolation level ${options.isolation ?? 'read committed'}${options.readOnly ? ' read only' : ''}`,
    );
    if (options.statementTimeoutMs !== undefined) {
      await tx.query(`set local statement_timeout = ${Math.max(1, Math.trunc(options.statementTimeoutMs))}`);
    }
    const result = await work(tx);
    await commit(tx);
    return result;
  } catch (error) {
    usable = !(error instanceof CommitUnknownError) && (await rollback(tx));
    throw error;
  } finally {
    tx.removeListener('error', ignore);
    tx.release(!usable);
  }
}

async function commit(tx: Connection): Promise<void> {
  const { command } = await tx.query('commit').catch((error: unknown) => {
    throw isConnectionError(error) ? new CommitUnknownError(error) : error;
  });
  // Postgres answers COMMIT of a failed transaction with ROLLBACK, and calls that a success.
  if (command !== 'COMMIT') throw new Error('a failed transaction was committed');
}

function rollback(tx: Connection): Promise<boolean> {
  return tx.query('rollback').then(
    () => true,
    () => false,
  );
}

/**
 * A transaction that is run again when Postgres says that it collided with another (deadlock, lock timeout):
 * at most `attempts` times, with growing, jittered pauses. `work` must have no effect outside the transaction.
 */
export async function retriedTransaction<T>(
  pool: Pool,
  work: (tx: Connection) => Promise<T>,
  options: TransactionOptions & { attempts?: number } = {},
): Promise<T> {
  for (let attempt = 1; ; attempt++) {
    try {
      return await transaction(pool, work, options);
    } catch (error) {
      if (!isRetryable(error) || attempt >= (options.attempts ?? 5)) throw error;
      const pauseMs = Math.random() * 20 * 2 ** attempt;
      await new Promise((resolve) => setTimeout(resolve, pauseMs));
    }
  }
}
