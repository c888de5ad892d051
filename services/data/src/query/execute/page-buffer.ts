import type { Row } from '@granary/shared/postgres/wire/rows';

const separator = 0x2c; // a comma

/** The bytes of an answer while its records come: one buffer that grows, into which each record is copied once. */
export class RecordsWriter {
  #bytes: Buffer;
  #length: number;
  #count = 0;
  #lastStart = 0;

  /** `sizeBytes` is about how much will come; more and less are no harm. */
  constructor(sizeBytes = 4_096) {
    this.#bytes = Buffer.allocUnsafe(sizeBytes);
    this.#length = this.#bytes.write('{"records":[', 'latin1');
  }

  get count(): number {
    return this.#count;
  }

  /** Bytes so far. */
  get length(): number {
    return this.#length;
  }

  /** The record that was added last, valid until the next one is. */
  get last(): Buffer {
    return this.#bytes.subarray(this.#lastStart, this.#length);
  }

  /** Adds a record that lies in a column. */
  addColumn(row: Row, column: number): void {
    this.#begin(row.byteLength(column));
    this.#length += row.copy(column, this.#bytes, this.#length);
  }

  add(record: Buffer | string): void {
    if (typeof record === 'string') {
      this.#begin(Buffer.byteLength(record));
      this.#length += this.#bytes.write(record, this.#length);
    } else {
      this.#begin(record.length);
      this.#length += record.copy(this.#bytes, this.#length);
    }
  }

  /** The whole answer, the members after `records` being those of `members`, JSON text without its first brace. */
  end(members: string): Buffer {
    const text = `],${members}`;
    this.#reserve(Buffer.byteLength(text));
    this.#length += this.#bytes.write(text, this.#length);
    return this.#bytes.subarray(0, this.#length);
  }

  #begin(sizeBytes: number): void {
    this.#reserve(sizeBytes + 1);
    if (this.#count > 0) this.#bytes[this.#length++] = separator;
    this.#count += 1;
    this.#lastStart = this.#length;
  }

  #reserve(more: number): void {
    if (this.#length + more <= this.#bytes.length) return;
    const larger = Buffer.allocUnsafe(Math.max(this.#bytes.length * 2, this.#length + more));
    this.#bytes.copy(larger, 0, 0, this.#length);
    this.#bytes = larger;
  }
}
