import { Backoff } from '../concurrency/backoff';
import type { Connection, Pool } from './pool';
import { CommitUnknownError, isConnectionError, isRetryable, sqlState } from './errors';
import { pipeline, type Step, type StepAnswer } from './pipeline';
import { expectStatementTimeout } from './pool-client';
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
  /** How many statements one text of `work` may have; 1 if it is not given. */
  statementsPerText?: number;
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
  return onConnection(
    pool,
    async (tx, isLost) => {
      for (const statement of begin(options)) await tx.query(statement);
      const result = await work(tx);
      await commit(isLost, () => tx.query('commit').then(({ command }) => [{ completion: command, rows: [] }]));
      return result;
    },
    options,
  );
}

/** The result of `work` after the first round trip of a transaction, and the steps of the last one. */
interface LastSteps<T> {
  result: T;
  last: readonly Step[];
  /** Called with the answers of `last`, once they are committed. */
  committed?: (answers: readonly StepAnswer[]) => void;
}

/**
 * A transaction in two round trips: the `first` steps are sent with BEGIN, and the `last` steps of `work` with COMMIT.
 * A step that fails rolls back, like an error of `work`. Throws CommitUnknownError when the connection was lost after
 * the last steps were sent, because COMMIT was sent with them.
 */
export function pipelinedTransaction<T>(
  pool: Pool,
  first: readonly Step[],
  work: (tx: Connection, ...answers: [StepAnswer, ...StepAnswer[]]) => Promise<LastSteps<T>>,
  options: TransactionOptions = {},
): Promise<T> {
  return onConnection(
    pool,
    async (tx, isLost) => {
      const before = begin(options).map(trusted);
      const firstAnswers = await pipeline(tx, [...before, ...first]);
      const [answer, ...others] = firstAnswers.slice(before.length);
      const { result, last, committed } = await work(tx, answer!, ...others);
      const answers = await commit(isLost, () => pipeline(tx, [...last, sql`commit`]));
      committed?.(answers);
      return result;
    },
    options,
  );
}

/**
 * A transaction in one round trip: the steps are sent between BEGIN and COMMIT; gives their answers. The error of a
 * step that fails is thrown, after a rollback. Throws CommitUnknownError when the connection was lost, because COMMIT
 * was sent with the steps.
 */
export function singleRoundTripTransaction(pool: Pool, steps: readonly Step[]): Promise<StepAnswer[]> {
  return onConnection(pool, async (tx, isLost) => {
    const before = begin({}).map(trusted);
    const answers = await commit(isLost, () => pipeline(tx, [...before, ...steps, sql`commit`]));
    return answers.slice(before.length, -1);
  });
}

/** The error by which the connection was lost while no statement was in flight. */
type IsLost = () => Error | undefined;

async function onConnection<T>(
  pool: Pool,
  work: (tx: Connection, isLost: IsLost) => Promise<T>,
  { statementTimeoutMs, statementsPerText = 1 }: TransactionOptions = {},
): Promise<T> {
  const tx = await pool.connect();
  if (statementTimeoutMs !== undefined) expectStatementTimeout(tx, statementTimeoutMs * statementsPerText);
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
    if (statementTimeoutMs !== undefined) expectStatementTimeout(tx, undefined);
    tx.release(!usable);
  }
}

const begin = ({ isolation, readOnly, statementTimeoutMs, lockTimeoutMs }: TransactionOptions): string[] => [
  `begin isolation level ${isolation ?? 'read committed'}${readOnly ? ' read only' : ''}`,
  ...(statementTimeoutMs === undefined ? [] : [setLocal('statement_timeout', statementTimeoutMs)]),
  ...(lockTimeoutMs === undefined ? [] : [setLocal('lock_timeout', lockTimeoutMs)]),
];

/** The statement that sets a timeout of the transaction, at least 1 ms: to Postgres 0 means no limit. */
const setLocal = (name: string, ms: number): string => `set local ${name} = ${Math.max(1, Math.trunc(ms))}`;

/** An error of COMMIT after which the connection may still be usable. */
class CommitRefused extends Error {}

/** `send` sends COMMIT and returns the answers of Postgres, of which its own is the last. */
async function commit(isLost: IsLost, send: () => Promise<StepAnswer[]>): Promise<StepAnswer[]> {
  const lostBy = isLost();
  // COMMIT was not sent.
  if (lostBy) throw lostBy;
  const answers = await send().catch((error: unknown) => {
    // Nothing was sent.
    if (error instanceof TypeError || error instanceof RangeError) throw error;
    if (sqlState(error) === undefined || isConnectionError(error)) throw new CommitUnknownError(error);
    // The refusal is definite if Postgres executes the next statement; if it is lost too, the error may have been
    // raised after the commit record was written.
    throw new CommitRefused('COMMIT was refused', { cause: error });
  });
  // Postgres completes COMMIT of a failed transaction as ROLLBACK, without an error.
  if (answers.at(-1)?.completion !== 'COMMIT') throw new Error('a failed transaction was committed');
  return answers;
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
