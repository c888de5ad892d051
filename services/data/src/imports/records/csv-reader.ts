import { isUtf8 } from 'node:buffer';
import { CARRIAGE_RETURN, LINE_FEED, OPEN_BRACE, OPEN_BRACKET } from '@granary/shared/json/bytes';
import { CellScanner, noneQuoted } from './cell-scanner';
import { ChunkReader, isWhite } from './chunk-reader';
import { columnsProblem } from './csv-columns';
import { DocumentWriter, type Cells } from './document-writer';
import type { Chunk, CsvOptions, FileRecord, ReaderState, RecordRefusal } from './record';

/** Reads CSV after RFC 4180, each record as a document with a field for each column. */
export class CsvReader extends ChunkReader {
  private readonly scanner: CellScanner;
  /** Whether all whole lines of the chunk are UTF-8, so that none has to be checked. */
  private readonly isAllUtf8: boolean;
  /** Undefined until the header has been read. */
  private writer: DocumentWriter | undefined;

  constructor(
    chunk: Chunk,
    private readonly options: CsvOptions,
    sizeMaxBytes: number,
  ) {
    super(chunk, sizeMaxBytes);
    const { bytes, isLast, state } = chunk;
    this.scanner = new CellScanner(bytes, options.separator.charCodeAt(0));
    this.isAllUtf8 = isUtf8(isLast ? bytes : bytes.subarray(0, bytes.lastIndexOf(LINE_FEED) + 1));
    const columns = options.columns ?? state.columns;
    if (columns && columnsProblem(columns) === undefined) this.writer = new DocumentWriter(columns, options);
  }

  override get state(): ReaderState {
    const { options, writer } = this;
    return { ...super.state, ...(writer && !options.columns && { columns: writer.columns }) };
  }

  protected override nextRecord(): FileRecord | undefined {
    const { columns } = this.options;
    if (columns && !this.writer) return this.fatal(this.position, 'VALIDATION_FAILED', columnsProblem(columns)!);
    for (;;) {
      const record = this.recordOrHeader();
      if (record !== 'header') return record;
    }
  }

  private recordOrHeader(): FileRecord | undefined | 'header' {
    if (this.isSkipping && !this.skipLine()) return undefined;
    this.passEmptyLines();
    const { bytes, chunk, lineEnd, position: start } = this;
    if (start === bytes.length) return undefined;
    // A record of the largest size with its line end: all that is looked at, wherever the chunk ends.
    const windowEnd = start + this.sizeMaxBytes + 2;
    if (lineEnd === bytes.length && lineEnd < windowEnd && !chunk.isLast) return undefined;
    const limit = Math.min(windowEnd, bytes.length);
    const otherFormat = this.hasBegun ? undefined : this.otherFormat(start, Math.min(lineEnd, limit));
    if (otherFormat) return otherFormat;
    if (this.scanner.quoteAfter(start) < Math.min(lineEnd, limit)) return this.quotedRecord(start, limit, windowEnd);

    const end = this.textEnd(start, lineEnd);
    if (end - start > this.sizeMaxBytes) return this.refuseLine(start, this.tooLarge());
    return this.record(start, end, Math.min(lineEnd + 1, bytes.length), undefined);
  }

  private quotedRecord(start: number, limit: number, windowEnd: number): FileRecord | undefined | 'header' {
    const { chunk, lineEnd, scanner, sizeMaxBytes } = this;
    const outcome = scanner.scan(start, limit, chunk.isLast && limit < windowEnd);
    if (outcome === 'malformed') return this.refuseLine(start, malformed(scanner.problem));
    if (outcome === 'whole') {
      if (scanner.end - start <= sizeMaxBytes) return this.record(start, scanner.end, scanner.next, scanner);
      return this.refuse(start, scanner.next, this.tooLarge());
    }
    if (limit < windowEnd && !chunk.isLast) return undefined;
    if (lineEnd >= limit && limit === windowEnd) return this.refuseLine(start, this.tooLarge());
    if (outcome === 'unclosed') return this.refuseLine(start, malformed('A quote is not closed'));
    return this.refuse(start, limit, this.tooLarge(), true);
  }

  /** The document of a record, or its refusal; `scanner` has its cells where there are quotes. */
  private record(start: number, end: number, next: number, scanner: CellScanner | undefined): FileRecord | 'header' {
    const { bytes, lines: line, writer } = this;
    if (!this.isAllUtf8 && !isUtf8(bytes.subarray(start, end))) {
      return this.refuse(start, next, malformed('The line is not UTF-8'));
    }
    const cells: Cells = scanner?.read() ?? {
      texts: bytes.toString('utf8', start, end).split(this.options.separator),
      quotedEmpty: noneQuoted,
    };
    if (!writer) return this.header(start, next, cells.texts, scanner);
    const { length } = cells.texts;
    if (length !== writer.columns.length) {
      const message = `The line has ${counted(length, 'cell')}, and there ${areColumns(writer.columns.length)}`;
      return this.refuse(start, next, malformed(message));
    }
    const text = writer.write(cells);
    if (text === undefined) {
      const message = 'A cell is not of the type of its column';
      return this.refuse(start, next, { code: 'SCHEMA_VIOLATION', message, details: writer.problems! });
    }
    this.advance(next);
    return { start, line, text: Buffer.from(text) };
  }

  /** Spaces around a name belong to it only within quotes. */
  private header(
    start: number,
    next: number,
    names: readonly string[],
    scanner: CellScanner | undefined,
  ): FileRecord | 'header' {
    const columns = names.map((name, index) => (scanner?.isQuoted(index) ? name : name.trim()));
    const problem = columnsProblem(columns);
    if (problem !== undefined) return this.fatal(start, 'VALIDATION_FAILED', `The header is not valid: ${problem}`);
    this.writer = new DocumentWriter(columns, this.options);
    this.advance(next);
    return 'header';
  }

  /** Refuses a record, and goes on at `next`, or behind the line that has that. */
  private refuse(start: number, next: number, refusal: RecordRefusal, skipsLine = false): FileRecord {
    if (!this.writer) return this.fatal(start, 'VALIDATION_FAILED', `The header is not valid: ${refusal.message}`);
    const { lines: line } = this;
    this.advance(next);
    if (skipsLine) this.skipLine();
    return { start, line, refusal };
  }

  /** Refuses the first line of a record, and goes on behind that line. */
  private refuseLine(start: number, refusal: RecordRefusal): FileRecord {
    return this.refuse(start, start, refusal, true);
  }

  private passEmptyLines(): void {
    const { bytes, chunk } = this;
    let offset = this.position;
    for (;;) {
      const byte = bytes[offset];
      if (byte === CARRIAGE_RETURN && bytes[offset + 1] === LINE_FEED) offset += 2;
      else if (byte === LINE_FEED || (byte === CARRIAGE_RETURN && chunk.isLast && offset + 1 === bytes.length))
        offset += 1;
      else break;
    }
    this.advance(offset);
  }

  /** The refusal of a file whose first byte is that of an object or an array. */
  private otherFormat(start: number, end: number): FileRecord | undefined {
    const { bytes } = this;
    let offset = start;
    while (offset < end && isWhite(bytes[offset]!)) offset += 1;
    if (offset === end) return undefined;
    if (bytes[offset] === OPEN_BRACE || bytes[offset] === OPEN_BRACKET) {
      const message = 'The file is JSON: its format is ndjson or json, not csv';
      return this.fatal(offset, 'VALIDATION_FAILED', message);
    }
    this.hasBegun = true;
    return undefined;
  }
}

const malformed = (message: string): RecordRefusal => ({ code: 'MALFORMED_CSV', message });

const counted = (count: number, noun: string): string => `${count} ${noun}${count === 1 ? '' : 's'}`;

const areColumns = (count: number): string => `${count === 1 ? 'is' : 'are'} ${counted(count, 'column')}`;
