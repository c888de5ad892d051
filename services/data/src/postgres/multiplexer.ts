import { Backoff } from '@granary/shared/concurrency/backoff';
import { ServiceError } from '@granary/shared/errors';
import type { Logger } from '@granary/shared/logger';
import { MultiplexedConnection, unsent, type PendingStatement } from './connection';
import { Queue } from './queue';
import type { SharedRow, SharingReader } from './shared-row';
import {
  connectionConfig,
  connectionLifetimeMs,
  statementTimeoutMs,
  type PoolOptions,
} from '@granary/shared/postgres/pool';
import { StatementNames } from '@granary/shared/postgres/prepared';
import { silenceGraceMs } from '@granary/shared/postgres/silence-watch';
import type { RowReader } from './rows';
import type { StatementValue } from '@granary/shared/postgres/wire/values';

const defaultWindow = 32;
const defaultWaitingMax = 4_096;
/** Statements that have names; each connection keeps the most recently used of them prepared. */
const namesMax = 4_096;
/** The silence of a connection is measured in ticks, so that a pause of this process counts as one tick. */
const ticksOfSilence = 4;
/** Delays between failed attempts to connect. */
const reconnectDelays = { firstMs: 50, maxMs: 1_000 };

export interface MultiplexerOptions extends PoolOptions {
  /** Settings of Postgres for these connections, by name. */
  settings?: Readonly<Record<string, string>>;
  /** Statements in flight on one connection: 32 if not given. */
  window?: number;
  /** Statements that may wait for a window, those of one iteration of the event loop included: 4,096 if not given. */
  waitingMax?: number;
}

/**
 * A few connections for short reads, each with many statements in flight (pipelining). Statements of one iteration of
 * the event loop are sent together, in one write per connection, and rows are read in place. A slow statement blocks
 * those behind it on its connection, so what may be slow belongs to a pool.
 */
export class Multiplexer {
  readonly #options: MultiplexerOptions;
  readonly #log: Logger;
  readonly #window: number;
  readonly #waitingMax: number;
  readonly #connections: MultiplexedConnection[] = [];
  readonly #names = new StatementNames(namesMax);
  readonly #waiting = new Queue<PendingStatement>();
  readonly #again = new Queue<PendingStatement>();
  #opening = 0;
  #flushing = false;
  readonly #reconnect = new Backoff(reconnectDelays);
  #lastFailure: { error: Error; retryAtMs: number } | undefined;
  #ticking: NodeJS.Timeout | undefined;
  #ending: { promise: Promise<void>; done: () => void } | undefined;

  constructor(options: MultiplexerOptions) {
    this.#options = options;
    this.#log = options.log;
    this.#window = options.window ?? defaultWindow;
    this.#waitingMax = options.waitingMax ?? defaultWaitingMax;
  }

  /**
   * Runs a read-only statement; `text` has `$n`. Rejects with the errors of a pool's `query`, for `sqlState`,
   * `isConnectionError` and `fromPostgres`; with OVERLOADED when too many wait; with what the reader throws.
   * `reader.row` may have been called before a failure; `end` is called only without one. `weight` is the number of
   * short reads that take about as long: later statements prefer other connections meanwhile.
   */
  read<T>(text: string, values: readonly StatementValue[], reader: RowReader<T>, weight = 1): Promise<T> {
    return this.#read(text, values, reader, weight, undefined);
  }

  /** Runs a statement as `read` does. Another statement may read its first row for it, see SharedRow. */
  readSharing<T>(
    text: string,
    { key, rest }: SharedRow,
    values: readonly StatementValue[],
    reader: SharingReader<T>,
  ): Promise<T> {
    return this.#read(text, values, reader, 1, { key, rest, reader });
  }

  #read<T>(
    text: string,
    values: readonly StatementValue[],
    reader: RowReader<T>,
    weight: number,
    shared: PendingStatement['shared'],
  ): Promise<T> {
    return new Promise<unknown>((resolve, reject) => {
      const refusal = this.#refusal();
      if (refusal) return reject(refusal);
      this.#waiting.push({
        text,
        name: this.#names.nameOf(text),
        values,
        reader,
        shared,
        weight,
        resolve,
        reject,
        ...unsent(),
      });
      this.#schedule();
    }) as Promise<T>;
  }

  /** Waits for the statements, then closes the connections. Later statements are refused. */
  async end(): Promise<void> {
    if (!this.#ending) {
      let done = () => {};
      const promise = new Promise<void>((resolve) => (done = resolve));
      this.#ending = { promise, done };
    }
    this.#endWhenIdle();
    await this.#ending.promise;
    clearTimeout(this.#ticking);
    await Promise.all(this.#connections.splice(0).map((connection) => connection.end()));
  }

  #refusal(): Error | undefined {
    if (this.#ending) return new Error('Cannot use a pool after calling end: the multiplexer is closed');
    if (this.#waiting.size >= this.#waitingMax) {
      return new ServiceError('UNAVAILABLE', 'OVERLOADED', 'Too many reads wait for the database, try again');
    }
    // Between two attempts to connect statements fail at once: waiting would only delay the same error.
    if (this.#connections.length + this.#opening === 0 && this.#isPausing()) return this.#lastFailure!.error;
    return undefined;
  }

  #isPausing(): boolean {
    return this.#lastFailure !== undefined && performance.now() < this.#lastFailure.retryAtMs;
  }

  #schedule(): void {
    if (this.#flushing) return;
    this.#flushing = true;
    // Not a microtask: requests of other sockets that are ready are read first, and sent in the same write.
    setImmediate(() => {
      this.#flushing = false;
      this.#flush();
    });
  }

  /** Once per iteration of the event loop: distributes the waiting statements to the connections, and sends them. */
  #flush(): void {
    let isBusy = this.#connections.length === 0;
    while (this.#waiting.size + this.#again.size > 0) {
      const connection = this.#leastBusy();
      isBusy ||= connection === undefined || connection.inFlight > 0;
      if (connection === undefined) break;
      const statement = (this.#again.shift() ?? this.#waiting.shift())!;
      if (statement.shared) this.#chooseText(statement, statement.shared, connection);
      connection.add(statement);
    }
    for (const connection of this.#connections) connection.flush();
    this.#watch();
    if (isBusy && this.#waiting.size + this.#again.size + this.#inFlight() > 0) this.#grow();
    this.#endWhenIdle();
  }

  /** Leaves the shared row to another statement that is sent with this one, where there is one. */
  #chooseText(
    statement: PendingStatement,
    shared: NonNullable<PendingStatement['shared']>,
    { rowLeaders }: MultiplexedConnection,
  ): void {
    if (statement.renewed) return shared.reader.resent();
    const leader = rowLeaders.leaderOf(shared.key, shared.reader);
    if (!leader) return;
    statement.text = shared.rest;
    statement.name = this.#names.nameOf(shared.rest);
    shared.reader.follow(leader);
  }

  #leastBusy(): MultiplexedConnection | undefined {
    let best: MultiplexedConnection | undefined;
    for (const connection of this.#connections) {
      if (connection.isExpired || connection.inFlight >= this.#window) continue;
      if (connection.load < (best?.load ?? Infinity)) best = connection;
    }
    return best;
  }

  /** Connections, statements in flight on them, and statements that wait. */
  counts(): { busy: number; idle: number; inFlight: number; waiting: number } {
    const busy = this.#connections.filter((connection) => connection.inFlight > 0).length;
    const waiting = this.#waiting.size + this.#again.size;
    return { busy, idle: this.#connections.length - busy, inFlight: this.#inFlight(), waiting };
  }

  #inFlight(): number {
    return this.#connections.reduce((sum, connection) => sum + connection.inFlight, 0);
  }

  /** Opens a connection, unless there are enough, one is being opened, or the last attempt has just failed. */
  #grow(): void {
    if (this.#opening > 0 || this.#connections.length >= this.#options.size) return;
    if (this.#isPausing()) return this.#rejectUnserved(this.#lastFailure!.error);
    this.#opening++;
    MultiplexedConnection.open(connectionConfig(this.#options), this.#options.settings ?? {}, {
      answered: () => this.#answered(),
      again: (statement) => this.#again.push(statement),
      closed: (connection, error, inFlight) => this.#closed(connection, error, inFlight),
    }).then(
      (connection) => this.#opened(connection),
      (error: unknown) => this.#notOpened(error as Error),
    );
  }

  #opened(connection: MultiplexedConnection): void {
    this.#opening--;
    this.#reconnect.reset();
    this.#lastFailure = undefined;
    this.#connections.push(connection);
    const lifetimeMs = this.#options.lifetimeMs ?? connectionLifetimeMs;
    connection.expireAfter(lifetimeMs, () => this.#closeExpired(connection));
    this.#schedule();
  }

  /** Closes a connection that gets no more statements, once those in flight are answered. */
  #closeExpired(connection: MultiplexedConnection): void {
    if (!connection.isExpired || connection.inFlight > 0) return;
    const index = this.#connections.indexOf(connection);
    if (index < 0) return;
    this.#connections.splice(index, 1);
    void connection.end();
  }

  #notOpened(error: Error): void {
    this.#opening--;
    this.#lastFailure = { error, retryAtMs: performance.now() + this.#reconnect.nextMs() };
    if (this.#reconnect.failures === 1)
      this.#log.warn({ err: error }, 'the multiplexer cannot connect to the database');
    this.#rejectUnserved(error);
    this.#endWhenIdle();
  }

  /** Rejects what waits when there is no connection that could serve it. */
  #rejectUnserved(error: Error): void {
    if (this.#connections.length > 0) return;
    for (const statement of [...this.#again.drain(), ...this.#waiting.drain()]) statement.reject(error);
  }

  #answered(): void {
    for (let index = this.#connections.length - 1; index >= 0; index--) this.#closeExpired(this.#connections[index]!);
    if (this.#waiting.size + this.#again.size > 0) this.#schedule();
    this.#endWhenIdle();
  }

  #closed(connection: MultiplexedConnection, error: Error, inFlight: number): void {
    const index = this.#connections.indexOf(connection);
    // A connection that is not listed is not open yet, or is being closed.
    if (index < 0) return;
    this.#connections.splice(index, 1);
    const message = inFlight > 0 ? 'a database connection broke' : 'an idle database connection broke';
    this.#log.warn({ err: error, inFlight }, message);
    this.#answered();
  }

  #endWhenIdle(): void {
    if (this.#ending && this.#waiting.size + this.#again.size + this.#opening + this.#inFlight() === 0) {
      this.#ending.done();
    }
  }

  /** Drops connections that do not answer. No timer runs while nothing is in flight. */
  #watch(): void {
    if (this.#ticking !== undefined || this.#inFlight() === 0) return;
    const silenceMs =
      (this.#options.statementTimeoutMs ?? statementTimeoutMs) + (this.#options.graceMs ?? silenceGraceMs);
    this.#ticking = setTimeout(() => {
      this.#ticking = undefined;
      for (const connection of [...this.#connections]) {
        if (connection.tick() > ticksOfSilence) {
          connection.destroy(new Error('Connection terminated: Postgres has not answered for too long'));
        }
      }
      this.#watch();
    }, silenceMs / ticksOfSilence);
    this.#ticking.unref();
  }
}
