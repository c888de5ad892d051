import { ServiceError } from '../../errors';
import type { Logger } from '../../logger';
import { LaneConnection, unsent, type LaneStatement } from './connection';
import { Queue } from './queue';
import { connectionConfig, statementTimeoutMs, type PoolOptions } from '../pool';
import { StatementNames } from '../prepared';

/** How long a connection may be silent beyond the statement timeout while work is in flight. */
const defaultGraceMs = 5_000;
const defaultWindow = 32;
const defaultWaitingMax = 4_096;
/** Statements that have names; each connection has the latest of them prepared. */
const namesMax = 4_096;
/** The silence of a connection is measured in ticks, so that a pause of this process counts as one. */
const ticksOfSilence = 4;
const firstPauseMs = 25;
const longestPauseMs = 1_000;

export interface LaneOptions extends PoolOptions {
  /** Settings of Postgres for these connections, by name. */
  settings?: Readonly<Record<string, string>>;
  /** Statements in flight on one connection: 32 if not given. */
  window?: number;
  /** Statements that may wait for a place in a window, those of one turn of the event loop included: 4,096 if not given. */
  waitingMax?: number;
  /** 5 s if not given. */
  graceMs?: number;
}

/** Takes the rows of one statement as they come. */
export interface RowReader<T> {
  /** Called for each row; what `row` gives is only valid during the call. */
  row(row: Row): void;
  /** After the last row; its result is that of the statement. */
  end(): T;
}

/** One row. Columns count from 0; a column that is SQL null has no bytes, a column that is not there is a RangeError. */
export interface Row {
  /** Whether the column is SQL null. */
  isNull(column: number): boolean;
  /** The text of the column as UTF-8, a view into the socket's bytes. */
  bytes(column: number): Buffer;
  byteLength(column: number): number;
  /** Copies the column into `target` at `start`; answers the number of bytes. Throws RangeError when it does not fit. */
  copy(column: number, target: Buffer, start: number): number;
  text(column: number): string;
}

/** A parameter. Arrays are of texts, for `$n::text[]` and what text can be read as. */
export type LaneValue = string | number | bigint | boolean | null | readonly (string | null)[];

/**
 * The lane for short reads: a few connections that carry many statements at once. Statements asked for in one turn of
 * the event loop go out together, those of a connection in one write, and rows are read where they lie. A slow
 * statement holds up those behind it on its connection, so what may be slow belongs to a pool.
 */
export class Lane {
  readonly #options: LaneOptions;
  readonly #log: Logger;
  readonly #window: number;
  readonly #waitingMax: number;
  readonly #connections: LaneConnection[] = [];
  readonly #names = new StatementNames(namesMax, 'forget');
  readonly #waiting = new Queue<LaneStatement>();
  readonly #again = new Queue<LaneStatement>();
  #opening = 0;
  #flushing = false;
  #failures = 0;
  #lastFailure: { error: Error; retryAtMs: number } | undefined;
  #ticking: NodeJS.Timeout | undefined;
  #ending: { promise: Promise<void>; done: () => void } | undefined;

  constructor(options: LaneOptions) {
    this.#options = options;
    this.#log = options.log;
    this.#window = options.window ?? defaultWindow;
    this.#waitingMax = options.waitingMax ?? defaultWaitingMax;
  }

  /**
   * Runs a read-only statement; `text` has `$n`. Rejects with the errors that `query` of a pool gives, so `sqlState`,
   * `isConnectionError` and `fromPostgres` tell what they mean; with OVERLOADED when too many wait; with what the
   * reader throws. `reader.row` may have been called before a failure, and `end` is called only without one. `weight`
   * is about how many short reads take as long: those that come after it go over another connection meanwhile.
   */
  read<T>(text: string, values: readonly LaneValue[], reader: RowReader<T>, weight = 1): Promise<T> {
    return new Promise<unknown>((resolve, reject) => {
      const refusal = this.#refusal();
      if (refusal) return reject(refusal);
      this.#waiting.push({
        text,
        name: this.#names.nameOf(text),
        values,
        reader,
        weight,
        resolve,
        reject,
        ...unsent(),
      });
      this.#schedule();
    }) as Promise<T>;
  }

  /** Waits for what has been asked for, then closes the connections. What is asked for afterwards is refused. */
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
    if (this.#ending) return new Error('Cannot use a pool after calling end: the lane is closed');
    if (this.#waiting.size >= this.#waitingMax) {
      return new ServiceError('UNAVAILABLE', 'OVERLOADED', 'Too many reads wait for the database, try again');
    }
    // Between two attempts to connect nobody waits: the answer would be the same, only later.
    if (this.#connections.length + this.#opening === 0 && this.#isPausing()) return this.#lastFailure!.error;
    return undefined;
  }

  #isPausing(): boolean {
    return this.#lastFailure !== undefined && performance.now() < this.#lastFailure.retryAtMs;
  }

  #schedule(): void {
    if (this.#flushing) return;
    this.#flushing = true;
    // Not a microtask: the requests of other sockets that are ready are read first, and go in the same write.
    setImmediate(() => {
      this.#flushing = false;
      this.#flush();
    });
  }

  /** Once in a turn of the event loop: gives what waits to the connections, and lets each send its part. */
  #flush(): void {
    let isBusy = this.#connections.length === 0;
    while (this.#waiting.size + this.#again.size > 0) {
      const connection = this.#leastBusy();
      isBusy ||= connection === undefined || connection.inFlight > 0;
      if (connection === undefined) break;
      connection.add((this.#again.shift() ?? this.#waiting.shift())!);
    }
    for (const connection of this.#connections) connection.flush();
    this.#watch();
    if (isBusy && this.#waiting.size + this.#again.size + this.#inFlight() > 0) this.#grow();
    this.#endWhenIdle();
  }

  #leastBusy(): LaneConnection | undefined {
    let best: LaneConnection | undefined;
    for (const connection of this.#connections) {
      if (connection.inFlight < this.#window && connection.load < (best?.load ?? Infinity)) best = connection;
    }
    return best;
  }

  /** Connections, statements in flight on them, and statements that wait for a place. */
  counts(): { busy: number; idle: number; inFlight: number; waiting: number } {
    const busy = this.#connections.filter((connection) => connection.inFlight > 0).length;
    const waiting = this.#waiting.size + this.#again.size;
    return { busy, idle: this.#connections.length - busy, inFlight: this.#inFlight(), waiting };
  }

  #inFlight(): number {
    return this.#connections.reduce((sum, connection) => sum + connection.inFlight, 0);
  }

  /** One connection more, unless there are enough, one is being made, or the last attempt has just failed. */
  #grow(): void {
    if (this.#opening > 0 || this.#connections.length >= this.#options.size) return;
    if (this.#isPausing()) return this.#rejectUnserved(this.#lastFailure!.error);
    this.#opening++;
    LaneConnection.open(connectionConfig(this.#options), this.#options.settings ?? {}, {
      answered: () => this.#answered(),
      again: (statement) => this.#again.push(statement),
      closed: (connection, error, inFlight) => this.#closed(connection, error, inFlight),
    }).then(
      (connection) => this.#opened(connection),
      (error: unknown) => this.#notOpened(error as Error),
    );
  }

  #opened(connection: LaneConnection): void {
    this.#opening--;
    this.#failures = 0;
    this.#lastFailure = undefined;
    this.#connections.push(connection);
    this.#schedule();
  }

  #notOpened(error: Error): void {
    this.#opening--;
    const pauseMs = Math.min(longestPauseMs, firstPauseMs * 2 ** this.#failures++);
    this.#lastFailure = { error, retryAtMs: performance.now() + pauseMs };
    if (this.#failures === 1) this.#log.warn({ err: error }, 'the lane cannot connect to the database');
    this.#rejectUnserved(error);
    this.#endWhenIdle();
  }

  /** What waits is told at once when there is no connection that could serve it. */
  #rejectUnserved(error: Error): void {
    if (this.#connections.length > 0) return;
    for (const statement of [...this.#again.drain(), ...this.#waiting.drain()]) statement.reject(error);
  }

  #answered(): void {
    if (this.#waiting.size + this.#again.size > 0) this.#schedule();
    this.#endWhenIdle();
  }

  #closed(connection: LaneConnection, error: Error, inFlight: number): void {
    const at = this.#connections.indexOf(connection);
    // One that is not among them has not been opened, or has said goodbye.
    if (at < 0) return;
    this.#connections.splice(at, 1);
    const message = inFlight > 0 ? 'a database connection broke' : 'an idle database connection broke';
    this.#log.warn({ err: error, inFlight }, message);
    this.#answered();
  }

  #endWhenIdle(): void {
    if (this.#ending && this.#waiting.size + this.#again.size + this.#opening + this.#inFlight() === 0) {
      this.#ending.done();
    }
  }

  /** Sees to it that connections that do not answer are dropped; no timer runs while nothing is in flight. */
  #watch(): void {
    if (this.#ticking !== undefined || this.#inFlight() === 0) return;
    const silenceMs =
      (this.#options.statementTimeoutMs ?? statementTimeoutMs) + (this.#options.graceMs ?? defaultGraceMs);
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
