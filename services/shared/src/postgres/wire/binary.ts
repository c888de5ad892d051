import { ByteWriter } from '../../byte-writer';

/** Text as a string, or as UTF-8, which can be sent without decoding it. */
export type Text = string | Buffer;

/** The types of array elements, by their numbers in Postgres. */
const oid = { bool: 16, bytea: 17, int8: 20, int4: 23, text: 25 };

/** The time from 1970 to 2000, the epoch of Postgres. */
const epochOffsetMs = 946_684_800_000;

/** Writes fields in Postgres's binary format, each preceded by its length. */
export class BinaryWriter extends ByteWriter {
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

  /** A text, or a bytea as its bytes. */
  textField(value: Text | null): void {
    if (value === null) return this.nullField();
    const start = this.size;
    this.int32(0);
    this.textOrBytes(value);
    this.int32At(start, this.size - start - 4);
  }

  /** A text, or a bytea, that is a part of a buffer, from `start` up to and without `end`. */
  bytesField(value: Buffer, start: number, end: number): void {
    this.int32(end - start);
    this.raw(value, start, end);
  }

  /** The JSON text of a jsonb: a string, or a part of a buffer, from `start` up to and without `end`. */
  jsonbField(value: Text, start?: number, end?: number): void {
    const lengthAt = this.size;
    this.int32(0);
    this.byte(1); // the version of the format
    if (typeof value === 'string') this.text(value);
    else this.raw(value, start, end);
    this.int32At(lengthAt, this.size - lengthAt - 4);
  }

  private textOrBytes(value: Text): void {
    if (typeof value === 'string') this.text(value);
    else this.raw(value);
  }
}

/**
 * An array as the value of a parameter, in binary format: its bytes are sent as they are, while an array as text would
 * be quoted, escaped and parsed again. The parameter must be of that array type.
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

/** bytea[] of elements that `write` writes as fields, of about so many bytes together. */
export const byteaArrayOf = <T>(
  values: readonly T[],
  sizeBytes: number,
  write: (writer: BinaryWriter, value: T) => void,
): Buffer => array('bytea', values, sizeBytes, write);

/** int8[] of whole numbers that a double holds exactly. */
export const int8Array = (values: readonly number[]): Buffer =>
  array('int8', values, values.length * 8, (writer, value) => writer.int8Field(value));

/** int4[] */
export const int4Array = (values: readonly number[]): Buffer =>
  array('int4', values, values.length * 4, (writer, value) => writer.int4Field(value));

/** bool[] */
export const boolArray = (values: readonly boolean[]): Buffer =>
  array('bool', values, values.length, (writer, value) => writer.boolField(value));
