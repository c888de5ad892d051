/** Text as a string, or as the bytes of its UTF-8, which need not be decoded to be sent. */
export type Text = string | Buffer;

/** The types of array elements, by their numbers in Postgres. */
const oid = { bool: 16, bytea: 17, int8: 20, int4: 23, text: 25 };

/** Up to so many bytes a loop is faster than the call of a native copy. */
const loopBytesMax = 24;
/** Microseconds from Postgres's epoch, 2000, to 1970. */
const epochOffsetMs = 946_684_800_000;

/** Values in Postgres's binary format, one behind the other in a buffer that grows. A field has its length before it. */
export class BinaryWriter {
  private bytes: Buffer;
  /** How many bytes have been written. */
  length = 0;

  constructor(sizeBytes: number) {
    this.bytes = Buffer.allocUnsafe(sizeBytes);
  }

  /** What has been written; the writer must not be used any more. */
  take(): Buffer {
    return this.bytes.subarray(0, this.length);
  }

  byte(value: number): void {
    this.reserve(1);
    this.bytes[this.length++] = value;
  }

  int16(value: number): void {
    this.reserve(2);
    this.length = this.bytes.writeInt16BE(value, this.length);
  }

  int32(value: number): void {
    this.reserve(4);
    this.int32At(this.length, value);
    this.length += 4;
  }

  /** Overwrites what was written at `at`. Each field needs one or two: Buffer's own way checks all of it once more. */
  int32At(at: number, value: number): void {
    const { bytes } = this;
    bytes[at] = value >>> 24;
    bytes[at + 1] = value >>> 16;
    bytes[at + 2] = value >>> 8;
    bytes[at + 3] = value;
  }

  /** Bytes as they are, from `start` up to, without it, `end`. */
  raw(value: Buffer, start = 0, end = value.length): void {
    const size = end - start;
    this.reserve(size);
    const { bytes, length: at } = this;
    if (size > loopBytesMax) value.copy(bytes, at, start, end);
    else for (let i = 0; i < size; i += 1) bytes[at + i] = value[start + i]!;
    this.length = at + size;
  }

  /** Text with a zero byte after it; it must not contain one. */
  zeroEnded(value: string): void {
    this.text(value);
    this.byte(0);
  }

  /** A message of the protocol: its first byte, its length, and what `write` writes. */
  message(code: number, write: () => void): void {
    this.byte(code);
    const start = this.length;
    this.int32(0);
    write();
    this.int32At(start, this.length - start);
  }

  nullField(): void {
    this.int32(-1);
  }

  boolField(value: boolean): void {
    this.int32(1);
    this.byte(value ? 1 : 0);
  }

  int4Field(value: number): void {
    this.int32(4);
    this.int32(value);
  }

  /** A whole number that a double holds exactly. */
  int8Field(value: number): void {
    this.int32(8);
    this.int32(Math.floor(value / 2 ** 32));
    this.int32(value >>> 0);
  }

  /** A timestamptz. */
  instantField(at: Date): void {
    this.int8Field((at.getTime() - epochOffsetMs) * 1000);
  }

  /** A text, or a bytea given as its bytes. */
  textField(value: Text | null): void {
    if (value === null) return this.nullField();
    const start = this.length;
    this.int32(0);
    this.text(value);
    this.int32At(start, this.length - start - 4);
  }

  /** A text, or a bytea, that stands in a buffer from `start` up to, without it, `end`. */
  bytesField(value: Buffer, start: number, end: number): void {
    this.int32(end - start);
    this.raw(value, start, end);
  }

  /** The JSON text of a jsonb: a string, or what stands in a buffer from `start` up to, without it, `end`. */
  jsonbField(value: Text, start?: number, end?: number): void {
    const lengthAt = this.length;
    this.int32(0);
    this.byte(1); // the version of the format
    if (typeof value === 'string') this.text(value);
    else this.raw(value, start, end);
    this.int32At(lengthAt, this.length - lengthAt - 4);
  }

  private text(value: Text): void {
    if (typeof value !== 'string') return this.raw(value);
    this.reserve(value.length * 3);
    this.length += this.bytes.write(value, this.length);
  }

  private reserve(size: number): void {
    const wanted = this.length + size;
    if (wanted <= this.bytes.length) return;
    const grown = Buffer.allocUnsafe(Math.max(wanted, 2 * this.bytes.length));
    this.bytes.copy(grown, 0, 0, this.length);
    this.bytes = grown;
  }
}

/**
 * An array as the value of a parameter: bytes travel as they are, while an array of strings would be quoted, escaped
 * and read again. The parameter must be of that array type.
 */
function array<T>(
  element: keyof typeof oid,
  values: readonly T[],
  sizeBytes: number,
  write: (writer: BinaryWriter, value: T) => void,
): Buffer {
  const writer = new BinaryWriter(20 + values.length * 4 + sizeBytes);
  writer.int32(1); // dimensions
  writer.int32(1); // there may be nulls
  writer.int32(oid[element]);
  writer.int32(values.length);
  writer.int32(1); // the index of the first element
  for (const value of values) write(writer, value);
  return writer.take();
}

const sizeOf = (values: ReadonlyArray<Text | null>): number =>
  values.reduce(
    (sum, value) => sum + (value === null ? 0 : typeof value === 'string' ? value.length * 3 : value.length),
    0,
  );

/** text[] */
export const textArray = (values: ReadonlyArray<Text | null>): Buffer =>
  array('text', values, sizeOf(values), (writer, value) => writer.textField(value));

/** bytea[] */
export const byteaArray = (values: readonly Buffer[]): Buffer =>
  array('bytea', values, sizeOf(values), (writer, value) => writer.textField(value));

/** int8[] of whole numbers that a double holds exactly. */
export const int8Array = (values: readonly number[]): Buffer =>
  array('int8', values, values.length * 8, (writer, value) => writer.int8Field(value));

/** int4[] */
export const int4Array = (values: readonly number[]): Buffer =>
  array('int4', values, values.length * 4, (writer, value) => writer.int4Field(value));

/** bool[] */
export const boolArray = (values: readonly boolean[]): Buffer =>
  array('bool', values, values.length, (writer, value) => writer.boolField(value));
