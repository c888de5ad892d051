/** Some whole records of a file. */
export interface Records {
  bytes: Buffer;
  count: number;
  /** The first and the last of them, with their ends. */
  first: Buffer;
  last: Buffer;
}

export const lineFeed = 0x0a;
const quote = 0x22;

/** Cuts the bytes of an export at the ends of its records: lines, or rows of a table, whose cells may have lines. */
export class RecordCutter {
  private rest: Buffer[] = [];
  private isQuoted = false;

  constructor(private readonly isTable: boolean) {}

  /** Whether the bytes so far end within a record. */
  get isWithinRecord(): boolean {
    return this.rest.length > 0;
  }

  /** The records that end in a chunk; undefined where none does. */
  cut(chunk: Buffer): Records | undefined {
    const { count, firstEnd, beforeLast, end } = this.isTable ? this.rowEnds(chunk) : lineEnds(chunk);
    if (count === 0) {
      if (chunk.length > 0) this.rest.push(chunk);
      return undefined;
    }
    const whole = chunk.subarray(0, end);
    const bytes = this.rest.length === 0 ? whole : Buffer.concat([...this.rest, whole]);
    const shift = bytes.length - whole.length;
    this.rest = end < chunk.length ? [chunk.subarray(end)] : [];
    const first = bytes.subarray(0, shift + firstEnd);
    return { bytes, count, first, last: count === 1 ? first : bytes.subarray(shift + beforeLast) };
  }

  private rowEnds(chunk: Buffer): Ends {
    const ends = { count: 0, firstEnd: 0, beforeLast: 0, end: 0 };
    for (let index = 0; index < chunk.length; index += 1) {
      const byte = chunk[index];
      // A quote within a cell is doubled, which changes nothing twice.
      if (byte === quote) this.isQuoted = !this.isQuoted;
      else if (byte === lineFeed && !this.isQuoted) addEnd(ends, index + 1);
    }
    return ends;
  }
}

interface Ends {
  count: number;
  firstEnd: number;
  /** The end of the record before the last one. */
  beforeLast: number;
  end: number;
}

function lineEnds(chunk: Buffer): Ends {
  const ends = { count: 0, firstEnd: 0, beforeLast: 0, end: 0 };
  for (let index = chunk.indexOf(lineFeed); index >= 0; index = chunk.indexOf(lineFeed, index + 1)) {
    addEnd(ends, index + 1);
  }
  return ends;
}

function addEnd(ends: Ends, end: number): void {
  if (ends.count === 0) ends.firstEnd = end;
  ends.beforeLast = ends.end;
  ends.end = end;
  ends.count += 1;
}

const cell = /("[^"]*(?:""[^"]*)*"|[^",\r\n]*)(,|\r\n|$)/y;

/** The cells of a row of a table, as exports write them. */
export function cellsOf(row: string): string[] {
  const cells: string[] = [];
  cell.lastIndex = 0;
  for (;;) {
    const [, text = '', end] = cell.exec(row) ?? [];
    cells.push(text.startsWith('"') ? text.slice(1, -1).replaceAll('""', '"') : text);
    if (end !== ',') return cells;
  }
}
