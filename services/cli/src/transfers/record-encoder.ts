import { promisify } from 'node:util';
import { gzip } from 'node:zlib';

const nothing = Buffer.alloc(0);
const gzipped = promisify(gzip);

/** Writes lines of JSON as they are, or as an array, byte for byte as the service writes it; compressed or not. */
export class RecordEncoder {
  constructor(
    private readonly options: { isArray: boolean; isGzip: boolean },
    /** Whether records precede these, in a file that goes on. */
    private hasRecords = false,
  ) {}

  /** Whole records, which are one part of a compressed file. */
  async encode(records: Buffer): Promise<Buffer> {
    const bytes = this.options.isArray ? this.elements(records) : records;
    return this.compressed(bytes);
  }

  /** The bytes behind the last record. */
  async end(): Promise<Buffer> {
    if (this.options.isArray) return this.compressed(Buffer.from(this.hasRecords ? '\n]\n' : '[]\n'));
    // A compressed file is one part at least.
    return this.options.isGzip && !this.hasRecords ? this.compressed(nothing) : nothing;
  }

  private elements(lines: Buffer): Buffer {
    // A byte in each character: line feeds are replaced fastest so.
    const text = lines.toString('latin1', 0, lines.length - 1).replaceAll('\n', ',\n');
    const before = this.hasRecords ? ',\n' : '[\n';
    return Buffer.from(before + text, 'latin1');
  }

  private async compressed(bytes: Buffer): Promise<Buffer> {
    this.hasRecords = true;
    return this.options.isGzip ? gzipped(bytes) : bytes;
  }
}
