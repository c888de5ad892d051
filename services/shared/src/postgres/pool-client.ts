import type { Socket } from 'node:net';
import pg from 'pg';
import { PreparedStatements } from './prepared';

/** The members of pg's connection that are used beside its documented interface. */
export interface PoolWire {
  stream: Socket;
  /** The texts of what is prepared, by name. */
  parsedStatements: Record<string, string>;
  close: (message: { type: 'S'; name: string }) => void;
}

const prepared = new WeakMap<PoolWire, PreparedStatements>();

/**
 * Records a use of a named statement on a connection. Returns the name of another one that the sender must close first.
 */
export function usePrepared(wire: PoolWire, name: string): string | undefined {
  let statements = prepared.get(wire);
  if (!statements) prepared.set(wire, (statements = new PreparedStatements()));
  const evicted = statements.use(name);
  if (evicted !== undefined) delete wire.parsedStatements[evicted];
  return evicted;
}

type Named = pg.Query & { name: string };
type Answered = (error: Error | null | undefined, result: pg.QueryResult) => void;

/** Sends a named statement, in place of pg's `submit`, and first closes the statement that it evicts. */
function submitNamed(this: Named, connection: pg.Connection): void {
  const wire = connection as unknown as PoolWire;
  const evicted = usePrepared(wire, this.name);
  if (evicted === undefined) return pg.Query.prototype.submit.call(this, connection);
  wire.stream.cork();
  try {
    // It follows a Sync, so Postgres does not skip it.
    wire.close({ type: 'S', name: evicted });
    return pg.Query.prototype.submit.call(this, connection);
  } finally {
    wire.stream.uncork();
  }
}

function namedQuery(config: pg.QueryConfig): Named {
  const query = new pg.Query(config) as Named;
  query.submit = submitNamed;
  return query;
}

const isNamed = (config: unknown): config is pg.QueryConfig =>
  typeof config === 'object' && config !== null && 'name' in config && !('submit' in config);

/** How long the other side has, at an end, to close a connection. */
const endTimeoutMs = 1_000;

/** The part of pg's client that its types leave out. */
interface ClientState {
  connection: { stream: Socket };
  /** False while a statement has been sent and its answer is not complete. */
  readyForQuery: boolean;
}

/**
 * The client of our pools. Of the statements with names, each connection keeps the most recently used prepared. A
 * server that has fallen silent is noticed by `isSilent`, and never delays `end`.
 */
export class PreparingClient extends pg.Client {
  /** Replaces the statement timeout of the pool for `isSilent`. */
  statementTimeoutMs: number | undefined;
  /** How many statements the last query has; each may take the whole timeout before anything is received. */
  #statements = 1;
  #progress = 0;
  #silentMs = 0;

  override query(...args: unknown[]): never {
    return this.#query(args) as never;
  }

  /**
   * Called every `periodMs`: whether a query has been under way, without a byte sent or received, for `graceMs` longer
   * than its statements may take. Counted in periods, so that a pause of this process counts as one.
   */
  isSilent(periodMs: number, statementTimeoutMs: number, graceMs: number): boolean {
    const { connection, readyForQuery } = this.#state();
    const progress = connection.stream.bytesRead - connection.stream.writableLength;
    const isWaiting = !readyForQuery && progress === this.#progress;
    this.#progress = progress;
    this.#silentMs = isWaiting ? this.#silentMs + periodMs : 0;
    return this.#silentMs > this.#statements * (this.statementTimeoutMs ?? statementTimeoutMs) + graceMs;
  }

  /** Drops the connection; the query that is under way fails with `error`. */
  destroy(error: Error): void {
    this.#state().connection.stream.destroy(error);
  }

  override end(...args: unknown[]): never {
    const timer = setTimeout(() => this.#state().connection.stream.destroy(), endTimeoutMs).unref();
    this.once('end', () => clearTimeout(timer));
    const end = super.end.bind(this) as (...args: unknown[]) => unknown;
    return end(...args) as never;
  }

  #state(): ClientState {
    return this as unknown as ClientState;
  }

  #query(args: unknown[]): unknown {
    const [config] = args;
    this.#statements = (config as { statementCount?: number } | undefined)?.statementCount ?? 1;
    const query = super.query.bind(this) as (...args: unknown[]) => unknown;
    if (!isNamed(config)) return query(...args);
    const callback = args.find((arg): arg is Answered => typeof arg === 'function');
    if (callback) return query(namedQuery(config), callback);
    return new Promise((resolve, reject) => {
      query(namedQuery(config), (error: Error | null, result: pg.QueryResult) =>
        error ? reject(error) : resolve(result),
      );
    });
  }
}

/** The statements that follow on this connection may take so long; undefined: what the pool gives them. */
export function expectStatementTimeout(connection: pg.ClientBase, statementTimeoutMs: number | undefined): void {
  if (connection instanceof PreparingClient) connection.statementTimeoutMs = statementTimeoutMs;
}
