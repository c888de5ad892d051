import { Backoff } from '../concurrency/backoff';
import type { Connection, Pool } from './pool';
import { CommitUnknownError, isConnectionError, isRetryable, sqlState } from './errors';
import { pipeline, type Step, type StepAnswer } from './pipeline';
import { sql, trusted } from './sql';

export { CommitUnknownError };

const retryDelays = { firstMs: 40, maxMs: 1_000 };

export interface TransactionOptions {
  isolation?: 'read committed' | 'repeatable read';
  readOnly?: boolean;
  /** Replaces the connection's own statement timeout for this transaction. */
  statementTimeoutMs?: number;
  /** Replaces the connection's own lock timeout for this transaction. */
  lockTimeoutMs?: number;
}

/**
 * Runs `work` in a transaction; only this file sends BEGIN. An error of `work` rolls back and is rethrown. Throws
 * CommitUnknownError when the connection was lost after COMMIT was sent.
 */
export function transaction<T>(
  pool: Pool,
  work: (tx: Connection) => Promise<T>,
  options: TransactionOptions = {},
): Promise<T> {
  return onConnection(pool, async (tx, isLost) => {
    for (const statement of begin(options)) await tx.query(statement);
    const result = await work(tx);
    await commit(isLost, () => tx.query('commit').then(({ command }) => command));
    return result;
  });
}

/**
 * A transaction in two round trips: `first` is sent with BEGIN, and the `last` steps of `work` with COMMIT. A step that
 * fails rolls back, like an error of `work`. Throws CommitUnknownError when the connection was lost after the last steps
 * were sent, because COMMIT was sent with them.
 */
export function pipelinedTransaction<T>(
  pool: Pool,
  first: Step,
  work: (tx: Connection, answer: StepAnswer) => Promise<{ result: T; last: readonly Step[] }>,
  options: TransactionOptions = {},
): Promise<T> {
  return onConnection(pool, async (tx, isLost) => {
    const answers = await pipeline(tx, [...begin(options).map(trusted), first]);
    const { result, last } = await work(tx, answers.at(-1)!);
    await commit(isLost, async () => (await pipeline(tx, [...last, sql`commit`])).at(-1)?.completion);
    return result;
  });
}

/**
 * A transaction in one round trip: the steps are sent between BEGIN and COMMIT. The error of a step that fails is thrown,
 * after a rollback. Throws CommitUnknownError when the connection was lost, because COMMIT was sent with the steps.
 */
export function singleRoundTripTransaction(pool: Pool, steps: readonly Step[]): Promise<void> {
  return onConnection(pool, (tx, isLost) =>
    commit(
      isLost,
      async () => (await pipeline(tx, [...begin({}).map(trusted), ...steps, sql`commit`])).at(-1)?.completion,
    ),
  );
}

/** The error by which the connection was lost while no statement was in flight. */
type IsLost = () => Error | undefined;

async function onConnection<T>(pool: Pool, work: (tx: Connection, isLost: IsLost) => Promise<T>): Promise<T> {
  const tx = await pool.connect();
  let lostBy: Error | undefined;
  const note = (error: Error) => (lostBy = error);
  tx.on('error', note);
  let usable = true;
  try {
    return await work(tx, () => lostBy);
  } catch (error) {
    usable = !(error instanceof CommitUnknownError) && (await rollback(tx));
    if (!(error instanceof CommitRefused)) throw error;
    throw usable ? error.cause : new CommitUnknownError(error.cause);
  } finally {
    tx.removeListener('error', note);
    tx.release(!usable);
  }
}

const begin = ({ isolation, readOnly, statementTimeoutMs, lockTimeoutMs }: TransactionOptions): string[] => [
  `begin isolation level ${isolation ?? 'read committed'}${readOnly ? ' read only' : ''}`,
  ...(statementTimeoutMs === undefined ? [] : [setLocal('statement_timeout', statementTimeoutMs)]),
  ...(lockTimeoutMs === undefined ? [] : [setLocal('lock_timeout', lockTimeoutMs)]),
];

/** At least 1 ms: 0 means no limit to Postgres. */
const setLocal = (name: string, ms: number): string => `set local ${name} = ${Math.max(1, Math.trunc(ms))}`;

/** An error of COMMIT after which the connection may still be usable. */
class CommitRefused extends Error {}

/** `send` sends COMMIT and returns the command that Postgres completed. */
async function commit(isLost: IsLost, send: () => Promise<string | undefined>): Promise<void> {
  const lostBy = isLost();
  // COMMIT was not sent.
  if (lostBy) throw lostBy;
  const command = await send().catch((error: unknown) => {
    // Nothing was sent.
    if (error instanceof TypeError || error instanceof RangeError) throw error;
    if (sqlState(error) === undefined || isConnectionError(error)) throw new CommitUnknownError(error);
    // The refusal is definite if Postgres executes the next statement; if it is lost too, the error may have been raised
    // after the commit record was written.
    throw new CommitRefused('COMMIT was refused', { cause: error });
  });
  // Postgres completes COMMIT of a failed transaction as ROLLBACK, without an error.
  if (command !== 'COMMIT') throw new Error('a failed transaction was committed');
}

function rollback(tx: Connection): Promise<boolean> {
  return tx.query('rollback').then(
    () => true,
    () => false,
  );
}

/**
 * A transaction that is retried after a conflict with another (deadlock, lock timeout), at most `attempts` times, with
 * backoff. `work` must have no effect outside the transaction.
 */
export async function retriedTransaction<T>(
  pool: Pool,
  work: (tx: Connection) => Promise<T>,
  options: TransactionOptions & { attempts?: number } = {},
): Promise<T> {
  const backoff = new Backoff(retryDelays);
  for (let attempt = 1; ; attempt++) {
    try {
      return await transaction(pool, work, options);
    } catch (error) {
      if (!isRetryable(error) || attempt >= (options.attempts ?? 5)) throw error;
      await backoff.wait();
    }
  }
}
