import type { Connection, Pool } from './pool';
import { CommitUnknownError, isConnectionError, isRetryable, sqlState } from './errors';
import { pipeline, type Step, type StepAnswer } from './pipeline';
import { sql, trusted } from './sql';

export { CommitUnknownError };

export interface TransactionOptions {
  isolation?: 'read committed' | 'repeatable read';
  readOnly?: boolean;
  /** Replaces the connection's own statement timeout for this transaction. */
  statementTimeoutMs?: number;
}

/**
 * Runs `work` in a transaction: this file is the only place that says begin. Whatever `work` throws rolls back and is
 * thrown on. Throws CommitUnknownError when the connection broke after COMMIT was sent.
 */
export function transaction<T>(
  pool: Pool,
  work: (tx: Connection) => Promise<T>,
  options: TransactionOptions = {},
): Promise<T> {
  return onConnection(pool, async (tx) => {
    await tx.query(begin(options));
    if (options.statementTimeoutMs !== undefined) await tx.query(statementTimeout(options.statementTimeoutMs));
    const result = await work(tx);
    await commit(() => tx.query('commit').then(({ command }) => command));
    return result;
  });
}

/**
 * A transaction in two journeys to Postgres: `first` travels with BEGIN, and what `work` leaves to be done travels with
 * COMMIT. A step that fails ends it like any error of `work`. Throws CommitUnknownError when the connection broke
 * after the last steps were sent, for COMMIT was sent with them.
 */
export function pipelinedTransaction<T>(
  pool: Pool,
  first: Step,
  work: (tx: Connection, answer: StepAnswer) => Promise<{ result: T; last: readonly Step[] }>,
  options: TransactionOptions = {},
): Promise<T> {
  return onConnection(pool, async (tx) => {
    const timeout =
      options.statementTimeoutMs === undefined ? [] : [trusted(statementTimeout(options.statementTimeoutMs))];
    const answers = await pipeline(tx, [trusted(begin(options)), ...timeout, first]);
    const { result, last } = await work(tx, answers.at(-1)!);
    await commit(async () => (await pipeline(tx, [...last, sql`commit`])).at(-1)?.completion);
    return result;
  });
}

/**
 * A transaction in one journey to Postgres: the steps travel between BEGIN and COMMIT. One that fails ends it, and is
 * thrown. Throws CommitUnknownError when the connection broke, for COMMIT was sent with the rest.
 */
export function oneTripTransaction(pool: Pool, steps: readonly Step[]): Promise<void> {
  return onConnection(pool, (tx) =>
    commit(async () => (await pipeline(tx, [trusted(begin({})), ...steps, sql`commit`])).at(-1)?.completion),
  );
}

async function onConnection<T>(pool: Pool, work: (tx: Connection) => Promise<T>): Promise<T> {
  const tx = await pool.connect();
  // Without a listener an error between two statements would end the process; the next statement reports it.
  const ignore = () => {};
  tx.on('error', ignore);
  let usable = true;
  try {
    return await work(tx);
  } catch (error) {
    usable = !(error instanceof CommitUnknownError) && (await rollback(tx));
    if (!(error instanceof CommitRefused)) throw error;
    throw usable ? error.cause : new CommitUnknownError(error.cause);
  } finally {
    tx.removeListener('error', ignore);
    tx.release(!usable);
  }
}

const begin = ({ isolation, readOnly }: TransactionOptions): string =>
  `begin isolation level ${isolation ?? 'read committed'}${readOnly ? ' read only' : ''}`;

const statementTimeout = (timeoutMs: number): string =>
  `set local statement_timeout = ${Math.max(1, Math.trunc(timeoutMs))}`;

/** What Postgres answered to COMMIT, when it did not end the connection with it. */
class CommitRefused extends Error {}

/** `send` sends COMMIT and gives the command that Postgres completed. */
async function commit(send: () => Promise<string | undefined>): Promise<void> {
  const command = await send().catch((error: unknown) => {
    // Nothing was sent.
    if (error instanceof TypeError || error instanceof RangeError) throw error;
    if (sqlState(error) === undefined || isConnectionError(error)) throw new CommitUnknownError(error);
    // Definite if Postgres is there for the next statement: what goes down with the connection may have come after
    // the commit record.
    throw new CommitRefused('COMMIT was refused', { cause: error });
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
