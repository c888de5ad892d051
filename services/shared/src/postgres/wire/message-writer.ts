import { BinaryWriter } from './binary';
import { frontend, headerBytes } from './messages';
import { toWireValue } from './values';

const parametersMax = 65_535;
const scratchBytes = 16 * 1024;
/** Larger output is handed over with its buffer instead of being copied. */
const copiedBytesMax = 64 * 1024;
/** The kind of what Close closes. */
const statementKind = 0x53;
const [textFormat, binaryFormat] = [0, 1];

/** Execute of the unnamed portal, all of its rows. */
const executeMessage = Buffer.from([frontend.execute, 0, 0, 0, 9, 0, 0, 0, 0, 0]);
const syncMessage = Buffer.from([frontend.sync, 0, 0, 0, 4]);
const copyDoneMessage = Buffer.from([frontend.copyDone, 0, 0, 0, 4]);

/**
 * Writes messages of the extended query protocol one after the other, to be sent together. Results are in text format.
 */
export class MessageWriter extends BinaryWriter {
  constructor(sizeBytes = scratchBytes) {
    super(sizeBytes);
  }

  /** Begins a message; returns what `end` needs. */
  begin(type: number): number {
    this.byte(type);
    const start = this.size;
    this.int32(0);
    return start;
  }

  /** Writes the length of a message, which includes itself and not the type. */
  end(start: number): void {
    this.int32At(start, this.size - start);
  }

  /** Prepares `text` under `name`; the empty name is the unnamed statement. Throws TypeError for a NUL in the text. */
  parse(name: string, text: string): void {
    if (text.includes('\0')) throw new TypeError('a statement contains a NUL character');
    // Closing a statement that does not exist is no error, but preparing one that exists is. After a failure it may
    // exist or not.
    if (name !== '') this.close(name);
    const start = this.begin(frontend.parse);
    this.zeroTerminated(name);
    this.zeroTerminated(text);
    this.int16(0); // Postgres infers the types of the parameters.
    this.end(start);
  }

  /** Drops the prepared statement `name`; it need not exist. */
  close(name: string): void {
    const start = this.begin(frontend.close);
    this.byte(statementKind);
    this.zeroTerminated(name);
    this.end(start);
  }

  /**
   * Binds the values to the statement and executes it. Throws RangeError for more values than the protocol allows, and
   * TypeError for a value that cannot be sent; a part of the message may be written by then.
   */
  execute(name: string, values: readonly unknown[]): void {
    if (values.length > parametersMax) throw new RangeError(`a statement has more than ${parametersMax} parameters`);
    const start = this.begin(frontend.bind);
    this.byte(0); // the unnamed portal
    this.zeroTerminated(name);
    this.formats(values);
    this.int16(values.length);
    for (const value of values) this.textField(toWireValue(value));
    this.int16(0); // all results as text
    this.end(start);
    this.raw(executeMessage);
  }

  /** Ends the implicit transaction, or a failed sequence of messages. */
  sync(): void {
    this.raw(syncMessage);
  }

  /** Ends the rows of a COPY. */
  copyDone(): void {
    this.raw(copyDoneMessage);
  }

  /** Returns what was written, as bytes that nothing overwrites; the writer is then empty and can be used again. */
  flush(): Buffer {
    const written = this.take();
    if (this.size > copiedBytesMax) this.bytes = Buffer.allocUnsafe(scratchBytes);
    this.size = 0;
    return written.length > copiedBytesMax ? written : Buffer.from(written);
  }

  /** The formats of parameters: one for each if any is binary, else none, which means text. */
  private formats(values: readonly unknown[]): void {
    if (!values.some((value) => Buffer.isBuffer(value))) return this.int16(0);
    this.int16(values.length);
    for (const value of values) this.int16(Buffer.isBuffer(value) ? binaryFormat : textFormat);
  }

  /** Text with a zero byte after it; it must not contain one. */
  private zeroTerminated(text: string): void {
    this.text(text);
    this.byte(0);
  }
}

/** Begins a CopyData message of about `sizeBytes`. */
export function beginCopyData(sizeBytes: number): MessageWriter {
  const writer = new MessageWriter(headerBytes + sizeBytes);
  writer.begin(frontend.copyData);
  return writer;
}

/** The message; its writer must not be used any more. */
export function endCopyData(writer: MessageWriter): Buffer {
  writer.end(1);
  return writer.take();
}
