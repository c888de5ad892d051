import {
  BACKSLASH,
  CLOSE_BRACE,
  CLOSE_BRACKET,
  COLON,
  COMMA,
  LOWER_F,
  LOWER_N,
  LOWER_T,
  MINUS,
  NINE,
  OPEN_BRACE,
  OPEN_BRACKET,
  QUOTE,
  ZERO,
} from '@granary/shared/json/bytes';
import { ChunkReader, isWhite } from './chunk-reader';
import type { ArrayPlace, Chunk, FileRecord, ReaderState } from './record';

/** Bytes of a string that are looked at one by one before the native search, which pays off for longer strings. */
const shortStringBytes = 24;

const expected = {
  opened: 'an object or "]"',
  element: '"," or "]"',
  comma: 'an object',
  closed: 'nothing but white space behind the array',
} as const satisfies Record<ArrayPlace, string>;

const beginsValue = (byte: number): boolean =>
  byte === OPEN_BRACE ||
  byte === OPEN_BRACKET ||
  byte === QUOTE ||
  byte === MINUS ||
  (byte >= ZERO && byte <= NINE) ||
  byte === LOWER_T ||
  byte === LOWER_F ||
  byte === LOWER_N;

const endsLiteral = (byte: number): boolean =>
  byte === COMMA ||
  byte === COLON ||
  byte === QUOTE ||
  byte === OPEN_BRACE ||
  byte === OPEN_BRACKET ||
  byte === CLOSE_BRACE ||
  byte === CLOSE_BRACKET ||
  isWhite(byte);

/** Reads an array of documents. An element is found by its brackets and strings, and is not checked otherwise. */
export class JsonArrayReader extends ChunkReader {
  private place: ArrayPlace | undefined;

  constructor(chunk: Chunk, sizeMaxBytes: number) {
    super(chunk, sizeMaxBytes);
    this.place = chunk.state.array;
  }

  override get state(): ReaderState {
    return this.place ? { array: this.place } : {};
  }

  protected override nextRecord(): FileRecord | undefined {
    for (;;) {
      const start = this.passWhite();
      const byte = this.bytes[start];
      if (byte === undefined) return this.chunk.isLast && this.place !== 'closed' ? this.unclosed(start) : undefined;
      const { place } = this;
      if (place === undefined) {
        if (byte !== OPEN_BRACKET) return this.noArray(start, byte);
        this.pass('opened');
      } else if (byte === CLOSE_BRACKET && (place === 'opened' || place === 'element')) {
        this.pass('closed');
      } else if (byte === COMMA && place === 'element') {
        this.pass('comma');
      } else if ((place === 'opened' || place === 'comma') && beginsValue(byte)) {
        return this.element(start, byte);
      } else {
        return this.fatal(start, 'MALFORMED_JSON', `Expected ${expected[place]}`);
      }
    }
  }

  /** Goes on behind a token of one byte. */
  private pass(place: ArrayPlace): void {
    this.place = place;
    this.advance(this.position + 1);
  }

  private element(start: number, byte: number): FileRecord | undefined {
    const { bytes, chunk, sizeMaxBytes } = this;
    const isNested = byte === OPEN_BRACE || byte === OPEN_BRACKET || byte === QUOTE;
    const limit = Math.min(bytes.length, start + sizeMaxBytes);
    const end = isNested ? this.endOfNested(start, limit) : this.endOfLiteral(start);
    if (end === undefined) {
      if (bytes.length - start > sizeMaxBytes) {
        const { code, message } = this.tooLarge('element');
        return this.fatal(start, code, message);
      }
      if (!chunk.isLast) return undefined;
      return this.fatal(bytes.length, 'MALFORMED_JSON', 'The file ends within an element of the array');
    }
    const { lines: line } = this;
    this.place = 'element';
    this.advance(end);
    if (byte === OPEN_BRACE) return { start, line, text: bytes.subarray(start, end) };
    const message = 'An element of the array is not an object';
    return { start, line, refusal: { code: 'VALIDATION_FAILED', message } };
  }

  /** The end of an object, an array or a string, undefined where that is not before the limit. */
  private endOfNested(start: number, limit: number): number | undefined {
    const { bytes } = this;
    let depth = 0;
    let offset = start;
    while (offset < limit) {
      const byte = bytes[offset]!;
      if (byte === QUOTE) {
        offset = this.endOfString(offset + 1, limit);
      } else {
        offset += 1;
        if (byte === OPEN_BRACE || byte === OPEN_BRACKET) depth += 1;
        else if (byte === CLOSE_BRACE || byte === CLOSE_BRACKET) depth -= 1;
        else continue;
      }
      if (depth === 0) return offset <= limit ? offset : undefined;
    }
    return undefined;
  }

  /** The offset behind the closing quote of a string, beyond the limit where that is not before it. */
  private endOfString(start: number, limit: number): number {
    const { bytes } = this;
    let offset = start;
    const shortEnd = Math.min(limit, start + shortStringBytes);
    while (offset < shortEnd) {
      const byte = bytes[offset]!;
      if (byte === QUOTE) return offset + 1;
      offset += byte === BACKSLASH ? 2 : 1;
    }
    while (offset < limit) {
      const quote = bytes.indexOf(QUOTE, offset);
      if (quote < 0 || quote >= limit) break;
      let escapes = quote;
      while (escapes > offset && bytes[escapes - 1] === BACKSLASH) escapes -= 1;
      // Each pair of them is one escaped backslash.
      if ((quote - escapes) % 2 === 0) return quote + 1;
      offset = quote + 1;
    }
    return limit + 1;
  }

  /** The end of a number or a name, undefined where that is not in the chunk, or not within the size of a record. */
  private endOfLiteral(start: number): number | undefined {
    const { bytes, chunk, sizeMaxBytes } = this;
    const limit = Math.min(bytes.length, start + sizeMaxBytes + 1);
    for (let offset = start; offset < limit; offset += 1) if (endsLiteral(bytes[offset]!)) return offset;
    return chunk.isLast && bytes.length - start <= sizeMaxBytes ? bytes.length : undefined;
  }

  private noArray(start: number, byte: number): FileRecord {
    if (byte !== OPEN_BRACE) return this.fatal(start, 'MALFORMED_JSON', 'Expected a JSON array, which begins with "["');
    const message = 'The file is no JSON array: its format is ndjson, one document on each line';
    return this.fatal(start, 'VALIDATION_FAILED', message);
  }

  private unclosed(offset: number): FileRecord {
    const message = this.place
      ? `The array does not end: expected ${expected[this.place]}`
      : 'The file is empty: expected a JSON array';
    return this.fatal(offset, 'MALFORMED_JSON', message);
  }
}
