import type { Socket } from 'node:net';
import pg from 'pg';
import { isConnectionError } from '../errors';
import { DataRow, MessageReader, ProtocolError, databaseError } from '../wire/message-reader';
import { MessageWriter } from '../wire/message-writer';
import { Queue } from './queue';
import { createSocket, socketOf, takeOver } from './socket';
import type { LaneValue, RowReader } from './multiplexer';

const handshakeTimeoutMs = 5_000;
const goodbyeTimeoutMs = 1_000;
/** Statements that are prepared at a time: each takes some tens of kilobytes in Postgres. */
const preparedMax = 256;

const code = (letter: string): number => letter.charCodeAt(0);
const [dataRow, commandComplete, emptyQuery, readyForQuery] = [code('D'), code('C'), code('I'), code('Z')];
const [parseComplete, bindComplete, closeComplete] = [code('1'), code('2'), code('3')];
const [errorResponse, notice, parameterStatus, notification] = [code('E'), code('N'), code('S'), code('A')];
const idle = code('I');

/** What is prepared under the statement's name is not there, or is out of date: to prepare it again helps. */
const outdated = new Set(['26000', '0A000']);

/** A statement on its way, and how far it has come. */
export interface LaneStatement {
  readonly text: string;
  /** None: the unnamed statement, parsed each time. */
  readonly name: string | undefined;
  readonly values: readonly LaneValue[];
  readonly reader: RowReader<unknown>;
  /** As how many short reads it counts, one at least, when the next one chooses a connection. */
  readonly weight: number;
  readonly resolve: (result: unknown) => void;
  readonly reject: (error: unknown) => void;
  /** It was refused because of what its name stood for: it is parsed again, and if that does not help it fails. */
  renewed: boolean;
  /** It was sent with a Parse. */
  parsed: boolean;
  hasRows: boolean;
  /** Postgres has said that it is done or has failed; only its ReadyForQuery is missing. */
  answered: boolean;
  /** What Postgres refused it with, or what its reader threw. */
  failure: { error: unknown } | undefined;
}

export interface ConnectionEvents {
  /** Statements have been answered: there is room. */
  answered(): void;
  /** The statement must be sent again: only the name under which it was prepared was wrong. */
  again(statement: LaneStatement): void;
  /** Once; what was in flight, so many statements, has been rejected. */
  closed(connection: LaneConnection, error: Error, inFlight: number): void;
}

/**
 * One connection that reads. `pg` connects it (address, TLS, authentication, settings); from then on this speaks the
 * extended query protocol on its socket: many statements in one write, answers read in place.
 *
 * Each statement has a Sync of its own and so is a transaction of its own: its answer goes out when it is done, and
 * its failure concerns no other. One Sync for all that are sent together would save Postgres 2 of 18 µs for a point
 * read and nothing to speak of for a page, but Postgres would keep back what is done until the slowest is, and skip
 * what comes behind one that fails.
 */
export class LaneConnection {
  readonly #client: pg.Client;
  readonly #socket: Socket;
  readonly #events: ConnectionEvents;
  readonly #writer = new MessageWriter();
  readonly #reader = new MessageReader((type, bytes, start, end) => this.#receive(type, bytes, start, end));
  readonly #row = new DataRow();
  /** What is prepared, or will be by what is in flight; the one that was used last comes last. */
  readonly #names = new Set<string>();
  readonly #sent = new Queue<LaneStatement>();
  #load = 0;
  #quietTicks = 0;
  #broken: Error | undefined;

  /** Connects, with these settings of Postgres. Throws what `pg` throws when that fails. */
  static async open(
    config: pg.ClientConfig,
    settings: Readonly<Record<string, string>>,
    events: ConnectionEvents,
  ): Promise<LaneConnection> {
    const client = new pg.Client({ ...config, stream: createSocket });
    // Without a listener a broken connection would end the process; `closed` tells of it.
    client.on('error', () => {});
    try {
      await client.connect();
      const connection = new LaneConnection(client, socketOf(client), events);
      await connection.#handshake({ ...settings, default_transaction_read_only: 'on' });
      // It may have been told to go in the same breath.
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

  get inFlight(): number {
    return this.#sent.size;
  }

  /** The weight of what is in flight. */
  get load(): number {
    return this.#load;
  }

  /** Writes a statement; it is sent by the next `flush`. A value that cannot be written rejects it. */
  add(statement: LaneStatement): void {
    const before = this.#writer.position;
    const name = statement.name ?? '';
    statement.parsed = name === '' || statement.renewed || !this.#names.has(name);
    try {
      if (statement.parsed) this.#prepare(name, statement.text);
      this.#writer.execute(name, statement.values);
    } catch (error) {
      this.#writer.rewind(before);
      statement.reject(error);
      return;
    }
    if (name !== '') {
      this.#names.delete(name);
      this.#names.add(name);
    }
    if (this.#sent.size === 0) this.#quietTicks = 0;
    this.#sent.push(statement);
    this.#load += statement.weight;
  }

  #prepare(name: string, text: string): void {
    this.#writer.parse(name, text);
    if (this.#names.size < preparedMax || name === '' || this.#names.has(name)) return;
    // Messages are taken in order, so whatever is in flight has used it by then.
    const oldest = this.#names.values().next().value!;
    this.#names.delete(oldest);
    this.#writer.close(oldest);
  }

  /** Sends what has been added, in one write. */
  flush(): void {
    if (this.#writer.position > 0) this.#socket.write(this.#writer.take());
  }

  /** Called at even intervals; answers for how many of them in a row work was in flight and nothing came. */
  tick(): number {
    this.#quietTicks = this.#sent.size === 0 ? 0 : this.#quietTicks + 1;
    return this.#quietTicks;
  }

  /** Says goodbye to Postgres; nothing may be in flight. */
  async end(): Promise<void> {
    const timer = setTimeout(() => this.#socket.destroy(), goodbyeTimeoutMs);
    await this.#client.end();
    clearTimeout(timer);
  }

  /** Drops the connection; what is in flight is rejected with `error` at once. */
  destroy(error: Error): void {
    if (this.#broken) return;
    this.#broken = error;
    this.#socket.destroy();
    this.#row.clear();
    const lost = this.#sent.drain();
    this.#load = 0;
    for (const statement of lost) statement.reject(error);
    this.#events.closed(this, error, lost.length);
  }

  /**
   * The first exchange after the socket was taken over. Had anything of `pg`'s own answers been left in the socket, it
   * would come now, where it is not expected, and no statement of anybody is concerned.
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

  /** The statement that a message of its answer is for. */
  #current(type: number): LaneStatement {
    const statement = this.#sent.first();
    if (statement === undefined || statement.answered) throw unexpected(type);
    return statement;
  }

  #deliver(statement: LaneStatement, bytes: Buffer, start: number, end: number): void {
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
    // It may not have come as far as being prepared; to prepare it twice does no harm.
    if (statement.parsed) this.#names.delete(statement.name);
    else if (!statement.hasRows && outdated.has(error.code ?? '')) statement.renewed = true;
  }

  #ready(status: number | undefined): void {
    const statement = this.#sent.first();
    if (!statement?.answered) throw unexpected(readyForQuery);
    this.#sent.shift();
    this.#load -= statement.weight;
    if (statement.renewed && !statement.parsed) this.#events.again(Object.assign(statement, unsent(true)));
    else settle(statement);
    // Somebody has said begin: what follows would be in that transaction.
    if (status !== idle) throw new ProtocolError('a statement left a transaction open');
  }
}

/** The error of all that was in flight, when Postgres has closed the connection with this one. */
const lostBy = (error: Error): Error =>
  isConnectionError(error) ? error : new Error('Connection terminated unexpectedly', { cause: error });

function settle(statement: LaneStatement): void {
  if (statement.failure) return statement.reject(statement.failure.error);
  try {
    statement.resolve(statement.reader.end());
  } catch (error) {
    statement.reject(error);
  }
}

/** How far a statement has come that has not been sent. */
export function unsent(
  renewed = false,
): Pick<LaneStatement, 'renewed' | 'parsed' | 'hasRows' | 'answered' | 'failure'> {
  return { renewed, parsed: false, hasRows: false, answered: false, failure: undefined };
}

const unexpected = (type: number): ProtocolError =>
  new ProtocolError(`a message of type ${JSON.stringify(String.fromCharCode(type))} came where none is expected`);
