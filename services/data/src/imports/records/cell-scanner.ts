import { CARRIAGE_RETURN, LINE_FEED, QUOTE } from '@granary/shared/json/bytes';
import type { Cells } from './document-writer';

/**
 * How a scan ended: at the end of a record, at an error, or at the limit, and there inside of quotes (`unclosed`) or
 * not (`unfinished`).
 */
export type ScanOutcome = 'whole' | 'malformed' | 'unclosed' | 'unfinished';

const plain = 0;
const quoted = 1;
/** With doubled quotes inside. */
const doubled = 2;

export const noneQuoted: ReadonlySet<number> = new Set();

/** Finds the cells of a record of CSV with quotes. */
export class CellScanner {
  /** Of the record that was scanned last: the end of its last cell, and the offset behind its line end. */
  end = 0;
  next = 0;
  /** Why it is malformed. */
  problem = '';
  private start = 0;
  /** Start, end and kind of each of its cells, one after the other. */
  private cells: number[] = [];
  /** There is no quote from `quoteFrom` up to `quoteAt`. */
  private quoteFrom = 0;
  private quoteAt = -1;

  constructor(
    private readonly bytes: Buffer,
    private readonly separator: number,
  ) {}

  /** Offset of the first quote from an offset on, the length of the chunk where there is none. */
  quoteAfter(offset: number): number {
    // Lines without quotes are many, and a chunk without them is searched once.
    if (offset < this.quoteFrom || offset > this.quoteAt) {
      const quote = this.bytes.indexOf(QUOTE, offset);
      this.quoteFrom = offset;
      this.quoteAt = quote < 0 ? this.bytes.length : quote;
    }
    return this.quoteAt;
  }

  /** `isEnd`: the file ends at the limit, and with it the record. */
  scan(start: number, limit: number, isEnd: boolean): ScanOutcome {
    const { bytes, separator } = this;
    this.start = start;
    this.cells = [];
    let offset = start;
    for (;;) {
      const isQuoted = offset < limit && bytes[offset] === QUOTE;
      offset = isQuoted ? this.closingQuote(offset, limit) : this.plainEnd(offset, limit);
      if (offset < 0) return 'unclosed';
      const byte = offset < limit ? bytes[offset] : undefined;
      if (byte === undefined) {
        if (!isEnd) return 'unfinished';
        return this.finish(isQuoted, offset, offset);
      }
      if (byte === LINE_FEED) return this.finish(isQuoted, offset, offset + 1);
      if (byte !== separator) {
        if (!isQuoted) return this.fail('A quote stands within a cell that does not begin with one');
        if (byte !== CARRIAGE_RETURN) return this.fail('Text follows a closing quote');
        if (offset + 1 >= limit) return isEnd ? this.finish(true, offset, limit) : 'unfinished';
        if (bytes[offset + 1] !== LINE_FEED) return this.fail('Text follows a closing quote');
        return this.finish(true, offset, offset + 2);
      }
      offset += 1;
    }
  }

  /** The cells of the record that was scanned last. */
  read(): Cells {
    const { bytes, cells, start } = this;
    const whole = bytes.toString('utf8', start, this.end);
    // Then each character is a byte, and the offsets are the same.
    const isAscii = whole.length === this.end - start;
    const texts: string[] = [];
    let quotedEmpty: Set<number> | undefined;
    for (let index = 0; index < cells.length; index += 3) {
      const from = cells[index]!;
      const to = cells[index + 1]!;
      const kind = cells[index + 2]!;
      const text = isAscii ? whole.slice(from - start, to - start) : bytes.toString('utf8', from, to);
      if (kind === quoted && text === '') (quotedEmpty ??= new Set()).add(texts.length);
      texts.push(kind === doubled ? text.replaceAll('""', '"') : text);
    }
    return { texts, quotedEmpty: quotedEmpty ?? noneQuoted };
  }

  /** Whether this cell of the record that was scanned last has quotes around it. */
  isQuoted(cell: number): boolean {
    return this.cells[3 * cell + 2] !== plain;
  }

  /** Adds the cell that begins with this quote, and returns the offset behind its end, -1 where it is not closed. */
  private closingQuote(open: number, limit: number): number {
    const { bytes } = this;
    let kind = quoted;
    let quote = this.quoteAfter(open + 1);
    while (quote + 1 < limit && bytes[quote + 1] === QUOTE) {
      kind = doubled;
      quote = this.quoteAfter(quote + 2);
    }
    if (quote >= limit) return -1;
    this.cells.push(open + 1, quote, kind);
    return quote + 1;
  }

  /** Adds a cell without quotes, with the CR of a line end, and returns the offset of the byte that ends it. */
  private plainEnd(start: number, limit: number): number {
    const { bytes, separator } = this;
    let offset = start;
    while (offset < limit) {
      const byte = bytes[offset]!;
      if (byte === separator || byte === LINE_FEED || byte === QUOTE) break;
      offset += 1;
    }
    this.cells.push(start, offset, plain);
    return offset;
  }

  private finish(isQuoted: boolean, lineEnd: number, next: number): ScanOutcome {
    const { bytes, cells } = this;
    let end = lineEnd;
    if (!isQuoted) {
      if (end > cells[cells.length - 3]! && bytes[end - 1] === CARRIAGE_RETURN) end -= 1;
      cells[cells.length - 2] = end;
    }
    this.end = end;
    this.next = next;
    return 'whole';
  }

  private fail(problem: string): ScanOutcome {
    this.problem = problem;
    return 'malformed';
  }
}
