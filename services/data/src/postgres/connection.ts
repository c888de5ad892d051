import type { Socket } from 'node:net';
import pg from 'pg';
import { isConnectionError } from '@granary/shared/postgres/errors';
import { PreparedStatements } from '@granary/shared/postgres/prepared';
import { DataRow, MessageReader, ProtocolError, databaseError } from './message-reader';
import { MessageWriter } from '@granary/shared/postgres/wire/message-writer';
import { backend } from '@granary/shared/postgres/wire/messages';
import type { RowReader } from './rows';
import type { StatementValue } from '@granary/shared/postgres/wire/values';
import { Queue } from './queue';
import { RowLeaders, type SharedRow, type SharingReader } from './shared-row';
import { createSocket, socketOf, takeOver } from './socket';

const handshakeTimeoutMs = 5_000;
const endTimeoutMs = 1_000;

const { bindComplete, closeComplete, commandComplete, dataRow, emptyQuery, errorResponse } = backend;
const { notice, notification, parameterStatus, parseComplete, readyForQuery } = backend;
/** The transaction status of a connection outside a transaction. */
const idle = 0x49;

/** SQLSTATEs of a prepared statement that does not exist or is out of date: it is prepared again. */
const outdated = new Set(['26000', '0A000']);

/** A statement that is waiting or in flight, and its progress. */
export interface PendingStatement {
  text: string;
  /** Undefined: the unnamed statement, parsed each time. */
  name: string | undefined;
  readonly values: readonly StatementValue[];
  readonly reader: RowReader<unknown>;
  /** Its first row, where other statements have it too. */
  readonly shared: (SharedRow & { reader: SharingReader<unknown> }) | undefined;
  /** How many short reads it counts as, one at least, when a connection is chosen for the next one. */
  readonly weight: number;
  readonly resolve: (result: unknown) => void;
  readonly reject: (error: unknown) => void;
  /** It was refused because its prepared statement was out of date: it is parsed again, once. */
  renewed: boolean;
  /** It was sent with a Parse. */
  parsed: boolean;
  hasRows: boolean;
  /** It is complete or has failed; only its ReadyForQuery is missing. */
  answered: boolean;
  /** The error of Postgres, or what its reader threw. */
  failure: { error: unknown } | undefined;
}

export interface ConnectionEvents {
  /** Statements have been answered: the window has room. */
  answered(): void;
  /** The statement must be sent again, because its prepared statement was out of date. */
  again(statement: PendingStatement): void;
  /** Called once, when the `inFlight` statements have been rejected. */
  closed(connection: MultiplexedConnection, error: Error, inFlight: number): void;
}

/**
 * One read-only connection. `pg` connects it (address, TLS, authentication, settings); then this class uses its socket
 * for the extended query protocol: many statements in one write, results read in place.
 *
 * Each statement has a Sync and so is a transaction of its own: its result is sent as soon as it is complete, and its
 * failure affects no other. One Sync for all that are sent together would save Postgres 2 of 18 µs for a point read and
 * next to nothing for a page, but Postgres would delay all results until the slowest, and skip what follows a failure.
 */
export class MultiplexedConnection {
  readonly #client: pg.Client;
  readonly #socket: Socket;
  readonly #events: ConnectionEvents;
  readonly #writer = new MessageWriter();
  readonly #reader = new MessageReader((type, bytes, start, end) => this.#receive(type, bytes, start, end));
  readonly #row = new DataRow();
  readonly #prepared = new PreparedStatements();
  readonly #sent = new Queue<PendingStatement>();
  /** The readers that get the shared rows of the statements that the next `flush` sends. */
  readonly rowLeaders = new RowLeaders();
  #load = 0;
  #quietTicks = 0;
  #broken: Error | undefined;
  #lifetime: NodeJS.Timeout | undefined;
  #isExpired = false;

  /** Connects, with these settings of Postgres. Throws the errors of `pg`. */
  static async open(
    config: pg.ClientConfig,
    settings: Readonly<Record<string, string>>,
    events: ConnectionEvents,
  ): Promise<MultiplexedConnection> {
    const client = new pg.Client({ ...config, stream: createSocket });
    // Without a listener a broken connection would end the process; `closed` reports it.
    client.on('error', () => {});
    try {
      await client.connect();
      const connection = new MultiplexedConnection(client, socketOf(client), events);
      await connection.#handshake({ ...settings, default_transaction_read_only: 'on' });
      // It may have been destroyed in the same callback.
      if (connection.#broken) throw connection.#broken;
      return connection;
    } catch (error) {
      void client.end().catch(() => {});
      throw (error as Error).message === 'timeout expired'
        ? new Error('Connection terminated due to connection timeout', { cause: error })
        : error;
    }
  }

  private constructor(client: pg.Client, socket: Socket, events: ConnectionEvents) {
    this.#client = client;
    this.#socket = socket;
    this.#events = events;
    let cause: Error | undefined;
    socket.on('error', (error) => (cause = error));
    const lost = () => this.destroy(cause ?? new Error('Connection terminated unexpectedly'));
    socket.on('end', lost).on('close', lost);
    takeOver(socket, (chunk) => this.#received(chunk));
  }

  /** Whether it should get no more statements, because it has been used for its lifetime. */
  get isExpired(): boolean {
    return this.#isExpired;
  }

  expireAfter(lifetimeMs: number, expired: () => void): void {
    this.#lifetime = setTimeout(() => {
      this.#isExpired = true;
      expired();
    }, lifetimeMs).unref();
  }

  get inFlight(): number {
    return this.#sent.size;
  }

  /** The weight of what is in flight. */
  get load(): number {
    return this.#load;
  }

  /** Writes a statement; it is sent by the next `flush`. A value that cannot be written rejects it. */
  add(statement: PendingStatement): void {
    const before = this.#writer.length;
    const name = statement.name ?? '';
    statement.parsed = name === '' || statement.renewed || !this.#prepared.has(name);
    try {
      if (statement.parsed) this.#writer.parse(name, statement.text);
      this.#writer.execute(name, statement.values);
      this.#writer.sync();
    } catch (error) {
      this.#writer.rewind(before);
      statement.reject(error);
      return;
    }
    // Messages are processed in order, so the statements in flight have used the evicted one by then.
    const evicted = name === '' ? undefined : this.#prepared.use(name);
    if (evicted !== undefined) this.#writer.close(evicted);
    if (this.#sent.size === 0) this.#quietTicks = 0;
    this.#sent.push(statement);
    this.#load += statement.weight;
  }

  /** Sends the added statements, in one write. */
  flush(): void {
    this.rowLeaders.clear();
    if (this.#writer.length > 0) this.#socket.write(this.#writer.flush());
  }

  /** Called periodically; returns for how many periods in a row statements were in flight and nothing was received. */
  tick(): number {
    this.#quietTicks = this.#sent.size === 0 ? 0 : this.#quietTicks + 1;
    return this.#quietTicks;
  }

  /** Closes the connection; nothing may be in flight. */
  async end(): Promise<void> {
    clearTimeout(this.#lifetime);
    const timer = setTimeout(() => this.#socket.destroy(), endTimeoutMs);
    await this.#client.end();
    clearTimeout(timer);
  }

  /** Drops the connection and rejects the statements in flight with `error`. */
  destroy(error: Error): void {
    if (this.#broken) return;
    this.#broken = error;
    clearTimeout(this.#lifetime);
    this.#socket.destroy();
    this.#row.clear();
    const lost = this.#sent.drain();
    this.#load = 0;
    for (const statement of lost) statement.reject(error);
    this.#events.closed(this, error, lost.length);
  }

  /**
   * The first statement after the socket was taken over. If a part of an answer to `pg` itself were left in the socket,
   * it would be received now as unexpected, before any statement of a caller is affected.
   */
  async #handshake(settings: Readonly<Record<string, string>>): Promise<void> {
    const timer = setTimeout(
      () => this.destroy(new Error('Connection terminated: no answer to the first statement')),
      handshakeTimeoutMs,
    );
    try {
      await new Promise((resolve, reject) => {
        this.add({
          text: 'select set_config(name, setting, false) from unnest($1::text[], $2::text[]) s (name, setting)',
          name: undefined,
          values: [Object.keys(settings), Object.values(settings)],
          reader: { row: () => {}, end: () => undefined },
          shared: undefined,
          weight: 1,
          resolve,
          reject,
          ...unsent(),
        });
        this.flush();
      });
    } catch (error) {
      this.destroy(error as Error);
      throw error;
    } finally {
      clearTimeout(timer);
    }
  }

  #received(chunk: Buffer): void {
    if (this.#broken) return;
    this.#quietTicks = 0;
    const before = this.#sent.size;
    try {
      this.#reader.push(chunk);
    } catch (error) {
      this.destroy(error as Error);
      return;
    }
    this.#row.clear();
    if (this.#sent.size < before) this.#events.answered();
  }

  #receive(type: number, bytes: Buffer, start: number, end: number): void {
    if (this.#broken) return;
    switch (type) {
      case dataRow:
        return this.#deliver(this.#current(type), bytes, start, end);
      case parseComplete:
      case bindComplete:
      case closeComplete:
        this.#current(type);
        return;
      case commandComplete:
      case emptyQuery:
        this.#current(type).answered = true;
        return;
      case readyForQuery:
        return this.#ready(bytes[start]);
      case errorResponse:
        return this.#failed(bytes, start, end);
      case notice:
      case parameterStatus:
      case notification:
        return;
      default:
        throw unexpected(type);
    }
  }

  /** The statement to which a message belongs. */
  #current(type: number): PendingStatement {
    const statement = this.#sent.first();
    if (statement === undefined || statement.answered) throw unexpected(type);
    return statement;
  }

  #deliver(statement: PendingStatement, bytes: Buffer, start: number, end: number): void {
    statement.hasRows = true;
    this.#row.point(bytes, start, end);
    if (statement.failure) return;
    try {
      statement.reader.row(this.#row);
    } catch (error) {
      statement.failure = { error };
    }
  }

  #failed(bytes: Buffer, start: number, end: number): void {
    const { error, isFatal } = databaseError(bytes, start, end);
    const statement = this.#sent.first();
    if (isFatal || statement === undefined) return this.destroy(lostBy(error));
    statement.failure ??= { error };
    statement.answered = true;
    if (statement.name === undefined) return;
    // It may have failed before it was prepared; preparing it twice is harmless.
    if (statement.parsed) this.#prepared.delete(statement.name);
    else if (!statement.hasRows && outdated.has(error.code ?? '')) statement.renewed = true;
  }

  #ready(status: number | undefined): void {
    const statement = this.#sent.first();
    if (!statement?.answered) throw unexpected(readyForQuery);
    this.#sent.shift();
    this.#load -= statement.weight;
    if (statement.renewed && !statement.parsed) this.#events.again(Object.assign(statement, unsent(true)));
    else settle(statement);
    // A statement has begun a transaction: the following ones would be part of it.
    if (status !== idle) throw new ProtocolError('a statement left a transaction open');
  }
}

/** The error of the statements in flight when Postgres has closed the connection with this one. */
const lostBy = (error: Error): Error =>
  isConnectionError(error) ? error : new Error('Connection terminated unexpectedly', { cause: error });

function settle(statement: PendingStatement): void {
  if (statement.failure) return statement.reject(statement.failure.error);
  try {
    statement.resolve(statement.reader.end());
  } catch (error) {
    statement.reject(error);
  }
}

/** The progress of a statement that has not been sent. */
export function unsent(
  renewed = false,
): Pick<PendingStatement, 'renewed' | 'parsed' | 'hasRows' | 'answered' | 'failure'> {
  return { renewed, parsed: false, hasRows: false, answered: false, failure: undefined };
}

const unexpected = (type: number): ProtocolError =>
  new ProtocolError(`a message of type ${JSON.stringify(String.fromCharCode(type))} came where none is expected`);
