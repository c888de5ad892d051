import { ByteWriter } from '@granary/shared/byte-writer';
import type { Row } from '../../postgres/rows';

const separator = 0x2c; // a comma

/** The bytes of a page of records, each of which is copied once. */
export class PageBuffer extends ByteWriter {
  #count = 0;
  #lastStart = 0;

  /** `sizeBytes` is the expected size; any other size is correct too. */
  constructor(sizeBytes = 4_096) {
    super(Math.max(sizeBytes, 64));
    this.text('{"records":[');
  }

  get count(): number {
    return this.#count;
  }

  /** The last record, valid until the next one is added. */
  get last(): Buffer {
    return this.bytes.subarray(this.#lastStart, this.size);
  }

  /** Adds a record that lies in a column. */
  addColumn(row: Row, column: number): void {
    this.#begin();
    this.reserve(row.byteLength(column));
    this.size += row.copy(column, this.bytes, this.size);
  }

  add(record: Buffer | string): void {
    this.#begin();
    if (typeof record === 'string') this.text(record);
    else this.raw(record);
  }

  /** The whole response, where `members` follow the records: JSON text without its first brace. */
  end(members: string): Buffer {
    this.text(`],${members}`);
    return this.take();
  }

  #begin(): void {
    if (this.#count > 0) this.byte(separator);
    this.#count += 1;
    this.#lastStart = this.size;
  }
}
