/** Up to this size a loop is faster than the call of a native function. */
const loopBytesMax = 24;

/** Text longer than this is measured first, so that exactly its size is reserved. */
const scannedOnceMax = 16 * 1024;

/**
 * Bytes written one after the other into one buffer, which at least doubles when it is full. Numbers are big-endian.
 */
export class ByteWriter {
  protected bytes: Buffer;
  protected size = 0;

  /** `sizeBytes` is the expected size; any other size is correct too. */
  constructor(sizeBytes: number) {
    this.bytes = Buffer.allocUnsafe(sizeBytes);
  }

  /** How many bytes have been written. */
  get length(): number {
    return this.size;
  }

  /** Discards what was written after the first `length` bytes. */
  rewind(length: number): void {
    this.size = length;
  }

  /** A view of what has been written; the writer must not be used any more. */
  take(): Buffer {
    return this.bytes.subarray(0, this.size);
  }

  byte(value: number): void {
    this.reserve(1);
    this.bytes[this.size++] = value;
  }

  int16(value: number): void {
    this.reserve(2);
    this.bytes[this.size++] = value >>> 8;
    this.bytes[this.size++] = value;
  }

  int32(value: number): void {
    this.reserve(4);
    this.int32At(this.size, value);
    this.size += 4;
  }

  /**
   * Overwrites four bytes that were written at `offset`. It does so by hand, because Buffer's method checks its
   * arguments each time.
   */
  int32At(offset: number, value: number): void {
    const { bytes } = this;
    bytes[offset] = value >>> 24;
    bytes[offset + 1] = value >>> 16;
    bytes[offset + 2] = value >>> 8;
    bytes[offset + 3] = value;
  }

  /** A part of a buffer, from `start` up to and without `end`. */
  raw(value: Buffer, start = 0, end = value.length): void {
    const size = end - start;
    this.reserve(size);
    const { bytes, size: offset } = this;
    if (size > loopBytesMax) value.copy(bytes, offset, start, end);
    else for (let i = 0; i < size; i += 1) bytes[offset + i] = value[start + i]!;
    this.size = offset + size;
  }

  /** Text as UTF-8. */
  text(value: string): void {
    if (value.length <= loopBytesMax && this.asciiText(value)) return;
    // A UTF-16 unit is at most three bytes of UTF-8; short text is scanned once and not twice.
    if (value.length <= scannedOnceMax) this.reserve(value.length * 3);
    else this.reserve(Buffer.byteLength(value));
    this.size += this.bytes.write(value, this.size);
  }

  /** Writes text of ASCII characters. Returns false, without having written anything, where the text has others. */
  private asciiText(value: string): boolean {
    this.reserve(value.length);
    const { bytes, size: offset } = this;
    for (let i = 0; i < value.length; i += 1) {
      const unit = value.charCodeAt(i);
      if (unit > 0x7f) return false;
      bytes[offset + i] = unit;
    }
    this.size = offset + value.length;
    return true;
  }

  /** Makes room for that many more bytes. */
  protected reserve(sizeBytes: number): void {
    const requiredBytes = this.size + sizeBytes;
    if (requiredBytes <= this.bytes.length) return;
    const larger = Buffer.allocUnsafe(Math.max(requiredBytes, 2 * this.bytes.length));
    this.bytes.copy(larger, 0, 0, this.size);
    this.bytes = larger;
  }
}
