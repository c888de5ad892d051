import { OPEN_BRACKET } from '@granary/shared/json/bytes';
import { ChunkReader } from './chunk-reader';
import type { FileRecord } from './record';

/** Reads NDJSON: a document on each line. The text of a line is not looked at, beyond white space before it. */
export class LinesReader extends ChunkReader {
  protected override nextRecord(): FileRecord | undefined {
    if (this.isSkipping && !this.skipLine()) return undefined;
    const { bytes, chunk, sizeMaxBytes } = this;
    const start = this.passWhite();
    if (start === bytes.length) return undefined;
    if (!this.hasBegun && bytes[start] === OPEN_BRACKET) {
      const message = 'The file is a JSON array: its format is json, not ndjson';
      return this.fatal(start, 'VALIDATION_FAILED', message);
    }
    this.hasBegun = true;
    const { lineEnd, lines: line } = this;
    // A line of the largest size may still get the CR and the LF of its end.
    if (lineEnd === bytes.length && !chunk.isLast && lineEnd - start < sizeMaxBytes + 2) return undefined;
    const end = this.textEnd(start, lineEnd);
    if (end - start > sizeMaxBytes) {
      this.skipLine();
      return { start, line, refusal: this.tooLarge() };
    }
    this.advance(Math.min(lineEnd + 1, bytes.length));
    return { start, line, text: bytes.subarray(start, end) };
  }
}
