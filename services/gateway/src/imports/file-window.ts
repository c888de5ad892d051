import { crc32 } from 'node:zlib';

/** The bytes of a file that have been received and are not known to be stored: those from `start` up to `end`. */
export class FileWindow {
  private chunks: Buffer[] = [];
  private length = 0;

  /** `checksum` is the CRC-32 of the bytes before `start`. */
  constructor(
    private startOffset: number,
    private crc: number,
  ) {}

  get start(): number {
    return this.startOffset;
  }

  get end(): number {
    return this.startOffset + this.length;
  }

  get size(): number {
    return this.length;
  }

  /** The CRC-32 of all bytes of the file before `start`. */
  get checksum(): number {
    return this.crc;
  }

  add(chunk: Buffer): void {
    this.chunks.push(chunk);
    this.length += chunk.length;
  }

  /** All of them. */
  bytes(): Buffer {
    if (this.chunks.length !== 1) this.chunks = [Buffer.concat(this.chunks, this.length)];
    return this.chunks[0]!;
  }

  /** Drops those before an offset, as far as they are here. */
  dropBefore(offset: number): void {
    const count = Math.min(this.length, Math.max(0, offset - this.startOffset));
    if (count === 0) return;
    const bytes = this.bytes();
    this.crc = crc32(bytes.subarray(0, count), this.crc);
    this.chunks = count === bytes.length ? [] : [bytes.subarray(count)];
    this.length -= count;
    this.startOffset += count;
  }
}
