import { DatabaseError } from 'pg';
import { headerBytes } from '@granary/shared/postgres/wire/messages';
import type { Row } from './rows';

/** Postgres itself has no value larger than 1 GiB; more is no message. */
const messageBytesMax = 1024 ** 3 + 65_536;
const nothing = Buffer.alloc(0);

/** Postgres has sent what the protocol does not allow here: the connection cannot be used any more. */
export class ProtocolError extends Error {
  override readonly name = 'ProtocolError';
  constructor(what: string) {
    // isConnectionError recognises a lost connection by these first words.
    super(`Connection terminated: ${what}`);
  }
}

/**
 * Receives the type of a message and its content, the bytes from `start` to `end`, which are only valid during the
 * call.
 */
export type MessageHandler = (type: number, bytes: Buffer, start: number, end: number) => void;

const int32 = (bytes: Buffer, at: number): number =>
  (bytes[at]! << 24) | (bytes[at + 1]! << 16) | (bytes[at + 2]! << 8) | bytes[at + 3]!;

/**
 * Divides the bytes of a connection into messages. A message within one chunk is not copied; one that spans several is
 * copied once, into a buffer of its size.
 */
export class MessageReader {
  readonly #deliver: MessageHandler;
  readonly #header = Buffer.alloc(headerBytes);
  #headerFilled = 0;
  /** An incomplete message with its header, once that is complete. */
  #message: Buffer | undefined;
  #messageFilled = 0;

  constructor(deliver: MessageHandler) {
    this.#deliver = deliver;
  }

  /** Throws ProtocolError, and what `deliver` throws. */
  push(chunk: Buffer): void {
    let position = this.#continue(chunk);
    while (chunk.length - position >= headerBytes) {
      const end = position + 1 + lengthAt(chunk, position);
      if (end > chunk.length) break;
      this.#deliver(chunk[position]!, chunk, position + headerBytes, end);
      position = end;
    }
    if (position < chunk.length) this.#keep(chunk, position);
  }

  /** Completes the message that earlier chunks began; returns where in the chunk the next one begins. */
  #continue(chunk: Buffer): number {
    let position = 0;
    if (this.#headerFilled > 0) {
      position = chunk.copy(this.#header, this.#headerFilled);
      this.#headerFilled += position;
      if (this.#headerFilled < headerBytes) return position;
      this.#headerFilled = 0;
      this.#begin(this.#header, 0);
    }
    if (this.#message === undefined) return position;
    const copied = chunk.copy(this.#message, this.#messageFilled, position);
    this.#messageFilled += copied;
    if (this.#messageFilled === this.#message.length) {
      const message = this.#message;
      this.#message = undefined;
      this.#deliver(message[0]!, message, headerBytes, message.length);
    }
    return position + copied;
  }

  /** Keeps the incomplete message at the end of a chunk. */
  #keep(chunk: Buffer, position: number): void {
    if (chunk.length - position < headerBytes) this.#headerFilled = chunk.copy(this.#header, 0, position);
    else this.#begin(chunk, position);
  }

  #begin(bytes: Buffer, position: number): void {
    this.#message = Buffer.allocUnsafe(1 + lengthAt(bytes, position));
    this.#messageFilled = bytes.copy(this.#message, 0, position);
  }
}

/** The length in the header at `position`: that of the message without its type. */
function lengthAt(bytes: Buffer, position: number): number {
  const length = int32(bytes, position + 1);
  if (length < 4 || length > messageBytesMax) throw new ProtocolError(`a message of ${length} bytes came`);
  return length;
}

/** The row of a DataRow message. One object serves all rows of a connection. */
export class DataRow implements Row {
  #bytes: Buffer = nothing;
  #columns = 0;
  #starts = new Int32Array(16);
  /** -1 is SQL null, as in the message. */
  #lengths = new Int32Array(16);

  /**
   * Points to the content of a message. Throws ProtocolError when the lengths of its columns do not add up to its own.
   */
  point(bytes: Buffer, start: number, end: number): void {
    const columns = (bytes[start]! << 8) | bytes[start + 1]!;
    if (columns > this.#starts.length) {
      this.#starts = new Int32Array(columns);
      this.#lengths = new Int32Array(columns);
    }
    let position = start + 2;
    for (let column = 0; column < columns; column++) {
      const length = int32(bytes, position);
      position += 4;
      this.#starts[column] = position;
      this.#lengths[column] = length;
      if (length > 0) position += length;
    }
    if (position !== end) throw new ProtocolError('a row is not as long as its columns');
    this.#bytes = bytes;
    this.#columns = columns;
  }

  /** Releases the bytes, so that an idle connection retains none. */
  clear(): void {
    this.#bytes = nothing;
    this.#columns = 0;
  }

  isNull(column: number): boolean {
    return this.#length(column) < 0;
  }

  byteLength(column: number): number {
    return Math.max(0, this.#length(column));
  }

  bytes(column: number): Buffer {
    const length = this.byteLength(column);
    const start = this.#starts[column]!;
    return this.#bytes.subarray(start, start + length);
  }

  copy(column: number, target: Buffer, start: number): number {
    const length = this.byteLength(column);
    if (start < 0 || start + length > target.length) throw new RangeError('the target is too small for the column');
    const from = this.#starts[column]!;
    return this.#bytes.copy(target, start, from, from + length);
  }

  text(column: number): string {
    const length = this.byteLength(column);
    const start = this.#starts[column]!;
    return this.#bytes.toString('utf8', start, start + length);
  }

  #length(column: number): number {
    if (!(column >= 0 && column < this.#columns)) throw new RangeError(`the row has no column ${column}`);
    return this.#lengths[column]!;
  }
}

type TextField = Exclude<
  { [K in keyof DatabaseError]: DatabaseError[K] extends string | undefined ? K : never }[keyof DatabaseError],
  undefined | 'name' | 'message' | 'stack'
>;

/** The fields of an ErrorResponse, by their codes, as `pg` names them. */
const fieldNames: Record<string, TextField> = {
  S: 'severity',
  C: 'code',
  D: 'detail',
  H: 'hint',
  P: 'position',
  p: 'internalPosition',
  q: 'internalQuery',
  W: 'where',
  s: 'schema',
  t: 'table',
  c: 'column',
  d: 'dataType',
  n: 'constraint',
  F: 'file',
  L: 'line',
  R: 'routine',
};

/** The error of an ErrorResponse as `pg` would throw it, and whether Postgres closes the connection after it. */
export function databaseError(bytes: Buffer, start: number, end: number): { error: DatabaseError; isFatal: boolean } {
  const fields = new Map<string, string>();
  for (let position = start; position < end && bytes[position] !== 0;) {
    const stop = bytes.indexOf(0, position);
    if (stop < 0 || stop >= end) throw new ProtocolError('an error has a field without an end');
    fields.set(String.fromCharCode(bytes[position]!), bytes.toString('utf8', position + 1, stop));
    position = stop + 1;
  }
  const error = new DatabaseError(fields.get('M') ?? '', end - start + 4, 'error');
  for (const [field, name] of Object.entries(fieldNames)) error[name] = fields.get(field);
  // V is the severity in English, whatever the language of the server.
  return { error, isFatal: fields.get('V') === 'FATAL' || fields.get('V') === 'PANIC' };
}
