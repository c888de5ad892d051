import { CARRIAGE_RETURN, LINE_FEED, SPACE, TAB } from '@granary/shared/json/bytes';
import type { Chunk, FileRecord, ReaderState, RecordReader, RecordRefusal, RefusalCode } from './record';

/** Whether this is a byte of the white space of JSON. */
export const isWhite = (byte: number): boolean =>
  byte === SPACE || byte === LINE_FEED || byte === CARRIAGE_RETURN || byte === TAB;

/** The position in a chunk, the count of its lines, and the begin of the file, which are alike in all formats. */
export abstract class ChunkReader implements RecordReader {
  position = 0;
  lines = 0;
  protected readonly bytes: Buffer;
  /** Offset of the first LF from `position` on, the length of the chunk where there is none. */
  protected lineEnd: number;
  /** See ReaderState. */
  protected isSkipping: boolean;
  protected hasBegun: boolean;
  private hasFailed = false;

  constructor(
    protected readonly chunk: Chunk,
    protected readonly sizeMaxBytes: number,
  ) {
    this.bytes = chunk.bytes;
    this.lineEnd = this.lineEndFrom(0);
    this.isSkipping = chunk.state.isSkipping ?? false;
    this.hasBegun = chunk.state.hasBegun ?? false;
  }

  next(): FileRecord | undefined {
    if (this.hasFailed) return undefined;
    if (this.position === 0 && this.chunk.offset === 0) {
      const { bytes } = this;
      // The mark may be cut.
      if (bytes.length < 3 && !this.chunk.isLast) return undefined;
      if ((bytes[0] === 0xff && bytes[1] === 0xfe) || (bytes[0] === 0xfe && bytes[1] === 0xff)) {
        return this.fatal(0, 'VALIDATION_FAILED', 'The file is UTF-16, and must be UTF-8');
      }
      if (bytes[0] === 0xef && bytes[1] === 0xbb && bytes[2] === 0xbf) this.advance(3);
    }
    return this.nextRecord();
  }

  get state(): ReaderState {
    return { ...(this.isSkipping && { isSkipping: true }), ...(this.hasBegun && { hasBegun: true }) };
  }

  protected abstract nextRecord(): FileRecord | undefined;

  /** Goes on to an offset, and counts the lines before it. */
  protected advance(offset: number): void {
    while (this.lineEnd < offset) {
      this.lines += 1;
      this.lineEnd = this.lineEndFrom(this.lineEnd + 1);
    }
    this.position = offset;
  }

  /** Goes on to the next byte that is no white space, or to the end of the chunk, and returns its offset. */
  protected passWhite(): number {
    const { bytes } = this;
    let offset = this.position;
    while (offset < bytes.length && isWhite(bytes[offset]!)) offset += 1;
    this.advance(offset);
    return offset;
  }

  /** Goes on behind the current line, and returns whether that ends in the chunk. */
  protected skipLine(): boolean {
    this.isSkipping = this.lineEnd === this.bytes.length;
    this.advance(this.isSkipping ? this.lineEnd : this.lineEnd + 1);
    return !this.isSkipping;
  }

  /** The end of a text whose line ends here: a CR before that belongs to the line end. */
  protected textEnd(start: number, lineEnd: number): number {
    return lineEnd > start && this.bytes[lineEnd - 1] === CARRIAGE_RETURN ? lineEnd - 1 : lineEnd;
  }

  protected tooLarge(noun = 'line'): Omit<RecordRefusal, 'isFatal'> {
    return { code: 'DOCUMENT_TOO_LARGE', message: `The ${noun} is longer than ${this.sizeMaxBytes} bytes` };
  }

  /** The refusal that ends the file, at an offset from `position` on; the position stays before it. */
  protected fatal(start: number, code: RefusalCode, message: string): FileRecord {
    this.hasFailed = true;
    let line = this.lines;
    for (let end = this.lineEnd; end < start; end = this.lineEndFrom(end + 1)) line += 1;
    return { start, line, refusal: { code, message, isFatal: true } };
  }

  private lineEndFrom(offset: number): number {
    const end = this.bytes.indexOf(LINE_FEED, offset);
    return end < 0 ? this.bytes.length : end;
  }
}
