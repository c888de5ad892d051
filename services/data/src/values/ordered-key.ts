import type { Capture } from '../json/document';
import { toText, type JsonValue } from '@granary/shared/json/value';
import { instantMicros, instantSeconds } from './instant';

/**
 * Keys of index columns: bytes that sort as values do (contract, 5.8). `sort_key()` in migrations/0008_ordered_keys.sql
 * makes the same bytes in SQL. The first byte is the type:
 *
 * | bytes     | value                                                                                         |
 * | --------- | --------------------------------------------------------------------------------------------- |
 * | 10 + 8    | instant of a date field: microseconds since 1970 as int64, sign bit flipped                     |
 * | 20 …      | string: its UTF-8; over 256 bytes the first 256, then ff, which no UTF-8 holds                  |
 * | 30 …      | negative number: 127 − w, then 65534 − d for each digit, two bytes each, then ffff              |
 * | 31        | zero                                                                                          |
 * | 32 …      | positive number: 128 + w, then each digit d, two bytes each                                     |
 * | 40, 41    | false, true                                                                                   |
 * | 50, 60    | any array, any object                                                                         |
 * | f0        | missing and null                                                                              |
 *
 * The digits d are those of the number in base 10,000, without zeros at either end, and w is the power of the first: as
 * Postgres keeps a numeric. So the key is exact, and 1, 1.0 and 10e-1 have the same one.
 */
export const keyType = {
  instant: 0x10,
  string: 0x20,
  negative: 0x30,
  zero: 0x31,
  positive: 0x32,
  false: 0x40,
  true: 0x41,
  array: 0x50,
  object: 0x60,
  empty: 0xf0,
} as const;

/** Bytes of a string that its key holds. */
export const keyStringMaxBytes = 256;
/** The byte that follows the head of a truncated string. */
const truncated = 0xff;

const MINUS = 0x2d;
const DOT = 0x2e;
const ZERO = 0x30;
const BACKSLASH = 0x5c;
const LOWER_E = 0x65;
const LOWER_U = 0x75;
/** The control characters that letters stand for after a backslash. */
const escapes = new Map([...'bfnrt'].map((letter, index) => [letter.charCodeAt(0), '\b\f\n\r\t'.charCodeAt(index)]));

/** Bytes before a key: its length, as in Postgres's binary formats. */
const lengthBytes = 4;
/** Bytes of a key that is not a string, at most: a number has up to 64 digits, so up to 17 in base 10,000. */
const scalarKeyMaxBytes = 64;
/**
 * A character that an escape stands for may reach so many bytes beyond the last that is kept, and a byte ends the key.
 */
const stringMarginBytes = 8;

/** Keys one behind the other in a buffer that grows, each as a field of Postgres's binary formats. */
export class OrderedKeys {
  #bytes: Buffer;
  #length = 0;

  constructor(sizeBytes: number) {
    this.#bytes = Buffer.allocUnsafe(sizeBytes);
  }

  /** The buffer that holds the keys, valid until another key is appended. */
  get bytes(): Buffer {
    return this.#bytes;
  }

  /** The offset at which the next key begins, with its length in front of it. */
  get length(): number {
    return this.#length;
  }

  /** Appends the key of a value in `text`; undefined stands for a missing value. */
  append(text: Buffer, value: Capture | undefined, isDate: boolean): void {
    const start = this.#length;
    this.#reserve(lengthBytes + scalarKeyMaxBytes);
    this.#length += lengthBytes;
    switch (value?.type) {
      case 'string':
        if (!isDate || !this.#appendInstant(text, value.start + 1, value.end - 1)) {
          this.#appendString(text, value.start + 1, value.end - 1);
        }
        break;
      case 'number':
        this.#appendNumber(text, value.start, value.end);
        break;
      case 'boolean':
        this.#appendByte(text[value.start] === 0x74 ? keyType.true : keyType.false);
        break;
      case 'array':
      case 'object':
        this.#appendByte(keyType[value.type]);
        break;
      default:
        this.#appendByte(keyType.empty);
    }
    this.#writeInt32(start, this.#length - start - lengthBytes);
  }

  /** The text of a string, between its quotes. */
  #appendString(text: Buffer, start: number, end: number): void {
    this.#reserve(1 + Math.min(end - start, keyStringMaxBytes) + stringMarginBytes);
    const bytes = this.#bytes;
    bytes[this.#length++] = keyType.string;
    const limit = this.#length + keyStringMaxBytes;
    let position = start;
    while (position < end && this.#length < limit) {
      const byte = text[position]!;
      if (byte === BACKSLASH) {
        position = this.#appendEscape(text, position + 1);
      } else {
        bytes[this.#length++] = byte;
        position += 1;
      }
    }
    if (position === end && this.#length <= limit) return;
    bytes[limit] = truncated;
    this.#length = limit + 1;
  }

  /** The character that an escape stands for, whose backslash is before `position`. Returns where the text goes on. */
  #appendEscape(text: Buffer, position: number): number {
    const letter = text[position]!;
    if (letter !== LOWER_U) {
      this.#bytes[this.#length++] = escapes.get(letter) ?? letter;
      return position + 1;
    }
    const isPair = (text[position + 1]! | 0x20) === 0x64 && text[position + 2]! >= 0x38;
    const end = position + (isPair ? 11 : 5);
    const character = JSON.parse(`"${text.toString('latin1', position - 1, end)}"`) as string;
    this.#length += this.#bytes.write(character, this.#length);
    return end;
  }

  /** False where the text is no instant, and nothing was appended. */
  #appendInstant(text: Buffer, start: number, end: number): boolean {
    if (text[start] === BACKSLASH || text.subarray(start, end).includes(BACKSLASH)) {
      const decoded = Buffer.from(JSON.parse(text.toString('utf8', start - 1, end + 1)) as string);
      return this.#appendInstantOf(decoded, 0, decoded.length);
    }
    return this.#appendInstantOf(text, start, end);
  }

  #appendInstantOf(text: Buffer, start: number, end: number): boolean {
    const seconds = instantSeconds(text, start, end);
    if (Number.isNaN(seconds)) return false;
    // Microseconds need more bits than a double has: seconds × 10^6 is split at the 16th bit.
    const upperSeconds = Math.floor(seconds / 2 ** 16);
    const upper = upperSeconds * 1_000_000;
    const lower = (seconds - upperSeconds * 2 ** 16) * 1_000_000 + instantMicros(text, start, end);
    const upperHigh = Math.floor(upper / 2 ** 16);
    const low = (upper - upperHigh * 2 ** 16) * 2 ** 16 + lower;
    this.#appendByte(keyType.instant);
    this.#writeInt32(this.#length, (upperHigh + Math.floor(low / 2 ** 32)) ^ 0x8000_0000);
    this.#writeInt32(this.#length + 4, low % 2 ** 32);
    this.#length += 8;
    return true;
  }

  #appendNumber(text: Buffer, start: number, end: number): void {
    // A sum in the row of a view has as many digits as it needs.
    if (end - start > scalarKeyMaxBytes) this.#reserve(end - start + scalarKeyMaxBytes);
    const isNegative = text[start] === MINUS;
    let [first, last, dot] = [-1, -1, -1];
    let mantissaEnd = isNegative ? start + 1 : start;
    for (; mantissaEnd < end; mantissaEnd += 1) {
      const byte = text[mantissaEnd]!;
      if (byte === DOT) dot = mantissaEnd;
      else if ((byte | 0x20) === LOWER_E) break;
      else if (byte !== ZERO) {
        last = mantissaEnd;
        if (first < 0) first = mantissaEnd;
      }
    }
    if (first < 0) return this.#appendByte(keyType.zero);
    if (dot < 0) dot = mantissaEnd;
    // The number is 0.… × 10^point, with its first digit behind the point.
    const point = (first < dot ? dot - first : dot + 1 - first) + exponentOf(text, mantissaEnd, end);
    const weight = Math.floor((point - 1) / 4);
    this.#appendByte(isNegative ? keyType.negative : keyType.positive);
    this.#appendByte(isNegative ? 127 - weight : 128 + weight);
    let digit = 0;
    let missing = point - 4 * weight;
    for (let position = first; position <= last; position += 1) {
      if (position === dot) continue;
      digit = digit * 10 + text[position]! - ZERO;
      missing -= 1;
      if (missing > 0) continue;
      this.#appendDigit(digit, isNegative);
      digit = 0;
      missing = 4;
    }
    if (missing < 4) this.#appendDigit(digit * 10 ** missing, isNegative);
    if (isNegative) {
      this.#appendByte(0xff);
      this.#appendByte(0xff);
    }
  }

  #appendDigit(digit: number, isNegative: boolean): void {
    const value = isNegative ? 65_534 - digit : digit;
    this.#appendByte(value >>> 8);
    this.#appendByte(value & 0xff);
  }

  #appendByte(byte: number): void {
    this.#bytes[this.#length++] = byte;
  }

  #writeInt32(position: number, value: number): void {
    const bytes = this.#bytes;
    bytes[position] = value >>> 24;
    bytes[position + 1] = value >>> 16;
    bytes[position + 2] = value >>> 8;
    bytes[position + 3] = value;
  }

  #reserve(size: number): void {
    const neededBytes = this.#length + size;
    if (neededBytes <= this.#bytes.length) return;
    const grown = Buffer.allocUnsafe(Math.max(neededBytes, 2 * this.#bytes.length));
    this.#bytes.copy(grown, 0, 0, this.#length);
    this.#bytes = grown;
  }
}

/** The exponent of a number whose mantissa ends at `mantissaEnd`; 0 where it has none. */
function exponentOf(text: Buffer, mantissaEnd: number, end: number): number {
  if (mantissaEnd === end) return 0;
  const sign = text[mantissaEnd + 1]!;
  let exponent = 0;
  for (let i = sign < ZERO ? mantissaEnd + 2 : mantissaEnd + 1; i < end; i += 1)
    exponent = exponent * 10 + text[i]! - ZERO;
  return sign === MINUS ? -exponent : exponent;
}

/** The key of a value, null standing for a missing one too. */
export function orderedKey(value: JsonValue, isDate: boolean): Buffer {
  if (Array.isArray(value)) return Buffer.of(keyType.array);
  if (value instanceof Map) return Buffer.of(keyType.object);
  if (value === null) return Buffer.of(keyType.empty);
  if (typeof value === 'string' && !isDate && value.length <= keyStringMaxBytes / 3) return shortStringKey(value);
  const type = typeof value === 'object' ? 'number' : (typeof value as 'string' | 'boolean');
  const text = Buffer.from(toText(value));
  const keys = new OrderedKeys(lengthBytes + scalarKeyMaxBytes);
  keys.append(text, { type, start: 0, end: text.length }, isDate);
  return keys.bytes.subarray(lengthBytes, keys.length);
}

/** The key of a string that certainly fits: a UTF-16 unit is at most three bytes of UTF-8. */
function shortStringKey(text: string): Buffer {
  const key = Buffer.allocUnsafe(1 + 3 * text.length);
  key[0] = keyType.string;
  return key.subarray(0, 1 + key.write(text, 1));
}

/** Whether a key has lost the end of its string, so that others may have the same one. */
export const isTruncated = (key: Buffer): boolean => key.length > 1 + keyStringMaxBytes;

/** Whether only one value has this key, so that the record need not be read. */
export const isExact = (key: Buffer): boolean =>
  key[0] !== keyType.array && key[0] !== keyType.object && !isTruncated(key);

/** A key as a parameter: bytea in its text form. */
export const keyText = (key: Buffer): string => `\\x${key.toString('hex')}`;
