import type { LaneValue } from '../multiplexer/multiplexer';

const parametersMax = 65_535;
const scratchBytes = 16 * 1024;
/** A scratch that a large statement has made larger than this is not kept. */
const keptScratchBytes = 1024 * 1024;

const code = (letter: string): number => letter.charCodeAt(0);
const [parseCode, bindCode, closeCode] = [code('P'), code('B'), code('C')];

/** Execute of the unnamed portal, all of its rows, and Sync. */
const executeAndSync = Buffer.from([code('E'), 0, 0, 0, 9, 0, 0, 0, 0, 0, code('S'), 0, 0, 0, 4]);
/** The end of a Close up to the name: a statement, not a portal. */
const closesStatement = code('S');

/**
 * Writes messages of the extended query protocol one behind the other, to be sent at once. Parameters and results
 * are in text format.
 */
export class MessageWriter {
  #bytes = Buffer.allocUnsafe(scratchBytes);
  #at = 0;

  /** How much has been written: the place to `rewind` to. */
  get position(): number {
    return this.#at;
  }

  /** Forgets what has been written since `position` was `to`. */
  rewind(to: number): void {
    this.#at = to;
  }

  /** Prepares `text` under `name`, the empty name being the unnamed statement. Throws TypeError on a NUL in the text. */
  parse(name: string, text: string): void {
    if (text.includes('\0')) throw new TypeError('a statement contains a NUL character');
    // To close what is not there is no error, to prepare what is there is one, and after a failure nobody can be sure.
    if (name !== '') this.close(name);
    const start = this.#begin(parseCode);
    this.#name(name);
    this.#text(text);
    this.#byte(0);
    this.#int16(0); // the types of the parameters are for Postgres to infer
    this.#finish(start);
  }

  /** Forgets what was prepared under `name`; that there is nothing is no error. */
  close(name: string): void {
    const start = this.#begin(closeCode);
    this.#byte(closesStatement);
    this.#name(name);
    this.#finish(start);
  }

  /** Binds the values to the statement, executes it, and ends its transaction. Throws RangeError on more values than the protocol has room for. */
  execute(name: string, values: readonly LaneValue[]): void {
    if (values.length > parametersMax) throw new RangeError(`a statement has more than ${parametersMax} parameters`);
    const start = this.#begin(bindCode);
    this.#byte(0); // the unnamed portal
    this.#name(name);
    this.#int16(0); // all parameters as text
    this.#int16(values.length);
    for (const value of values) this.#value(value);
    this.#int16(0); // all results as text
    this.#finish(start);
    this.#reserve(executeAndSync.length);
    this.#at += executeAndSync.copy(this.#bytes, this.#at);
  }

  /** What has been written, as bytes of their own; the writer is empty afterwards. */
  take(): Buffer {
    const taken = Buffer.from(this.#bytes.subarray(0, this.#at));
    this.#at = 0;
    if (this.#bytes.length > keptScratchBytes) this.#bytes = Buffer.allocUnsafe(scratchBytes);
    return taken;
  }

  #begin(type: number): number {
    this.#byte(type);
    this.#reserve(4);
    this.#at += 4;
    return this.#at - 4;
  }

  /** Writes the length of a message, which counts itself and not the type. */
  #finish(start: number): void {
    this.#bytes.writeInt32BE(this.#at - start, start);
  }

  #value(value: LaneValue): void {
    this.#reserve(4);
    const start = this.#at;
    this.#at += 4;
    if (value === null) {
      this.#bytes.writeInt32BE(-1, start);
      return;
    }
    this.#text(typeof value === 'string' ? value : typeof value === 'object' ? arrayText(value) : String(value));
    this.#bytes.writeInt32BE(this.#at - start - 4, start);
  }

  #name(name: string): void {
    this.#text(name);
    this.#byte(0);
  }

  #text(text: string): void {
    // A UTF-16 unit is never more than three bytes of UTF-8: so the text is walked once, not twice.
    this.#reserve(text.length * 3);
    this.#at += this.#bytes.write(text, this.#at);
  }

  #byte(value: number): void {
    this.#reserve(1);
    this.#bytes[this.#at++] = value;
  }

  #int16(value: number): void {
    this.#reserve(2);
    this.#bytes[this.#at++] = value >>> 8;
    this.#bytes[this.#at++] = value;
  }

  #reserve(more: number): void {
    if (this.#at + more <= this.#bytes.length) return;
    const larger = Buffer.allocUnsafe(Math.max(this.#bytes.length * 2, this.#at + more));
    this.#bytes.copy(larger, 0, 0, this.#at);
    this.#bytes = larger;
  }
}

/** The literal of an array of texts, each in quotes, so that none is taken for NULL or for syntax. */
function arrayText(values: readonly (string | null)[]): string {
  return `{${values.map((value) => (value === null ? 'NULL' : `"${value.replace(/[\\"]/g, '\\$&')}"`)).join(',')}}`;
}
