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
  /** Replaces the connection's own lock timeout for this transaction. */
  lockTimeoutMs?: number;
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
  return onConnection(pool, async (tx, isLost) => {
    for (const statement of begin(options)) await tx.query(statement);
    const result = await work(tx);
    await commit(isLost, () => tx.query('commit').then(({ command }) => command));
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
  return onConnection(pool, async (tx, isLost) => {
    const answers = await pipeline(tx, [...begin(options).map(trusted), first]);
    const { result, last } = await work(tx, answers.at(-1)!);
    await commit(isLost, async () => (await pipeline(tx, [...last, sql`commit`])).at(-1)?.completion);
    return result;
  });
}

/**
 * A transaction in one journey to Postgres: the steps travel between BEGIN and COMMIT. One that fails ends it, and is
 * thrown. Throws CommitUnknownError when the connection broke, for COMMIT was sent with the rest.
 */
export function oneTripTransaction(pool: Pool, steps: readonly Step[]): Promise<void> {
  return onConnection(pool, (tx, isLost) =>
    commit(
      isLost,
      async () => (await pipeline(tx, [...begin({}).map(trusted), ...steps, sql`commit`])).at(-1)?.completion,
    ),
  );
}

/** What the connection was lost by while nothing was under way on it. */
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

/** Of 0 milliseconds Postgres would make no limit. */
const setLocal = (name: string, ms: number): string => `set local ${name} = ${Math.max(1, Math.trunc(ms))}`;

/** What Postgres answered to COMMIT, when it did not end the connection with it. */
class CommitRefused extends Error {}

/** `send` sends COMMIT and gives the command that Postgres completed. */
async function commit(isLost: IsLost, send: () => Promise<string | undefined>): Promise<void> {
  const lostBy = isLost();
  // COMMIT is not sent any more.
  if (lostBy) throw lostBy;
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
