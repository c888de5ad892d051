import {
  TAB,
  LINE_FEED,
  CARRIAGE_RETURN,
  SPACE,
  QUOTE,
  PLUS,
  MINUS,
  DOT,
  ZERO,
  NINE,
  BACKSLASH,
  LOWER_E,
  LOWER_U,
  decodeString,
  sameBytes,
  hashKey,
} from './bytes';
import { JsonError, type JsonErrorReason } from './error';
import { isExponentInRange, numberExponentMax } from './number-range';

/** 1 for each byte that ends a run of plain characters in a string: quote, backslash and control characters. */
const stopsString = new Uint8Array(256).fill(1, 0, SPACE);
stopsString[QUOTE] = 1;
stopsString[BACKSLASH] = 1;

/** 1 for each byte that may follow a backslash, `u` apart. */
const isSimpleEscape = new Uint8Array(256);
for (const byte of Buffer.from('"\\/bfnrt')) isSimpleEscape[byte] = 1;

/** Returned by peekByte at the end of the text. */
export const END = -1;

/**
 * Scans the tokens of JSON in the raw bytes of one text, and validates each completely in one pass. The grammar above
 * tokens is the reader's.
 */
export abstract class JsonScanner {
  /** Offset of the next byte to read. After a value it is where the value ends. */
  position = 0;
  /** Hash of the current key's text, see `hashKey`. Valid from nextMember() until the member's value is taken. */
  keyHash = 0;

  /** Extent of the current key as written, without its quotes. Valid like keyHash. */
  keyStart = 0;
  keyEnd = 0;
  keyEscaped = false;
  protected stringStart = 0;
  protected stringEscaped = false;

  constructor(
    readonly bytes: Buffer,
    private readonly digitsMax: number,
  ) {}

  /** The current path, for errors; empty at the root. */
  protected abstract path(): string;

  /** The current key, decoded. Valid from nextMember() until the member's value is taken. */
  key(): string {
    return decodeString(this.bytes, this.keyStart, this.keyEnd, this.keyEscaped);
  }

  /** Throws a JsonError with the current offset and path. */
  fail(reason: JsonErrorReason, message: string): never {
    const path = this.path();
    throw new JsonError(reason, this.position, message, path === '' ? undefined : path);
  }

  protected peekByte(): number {
    const { bytes } = this;
    const length = bytes.length;
    let offset = this.position;
    while (offset < length) {
      const byte = bytes[offset] as number;
      if (byte > SPACE || (byte !== SPACE && byte !== LINE_FEED && byte !== CARRIAGE_RETURN && byte !== TAB)) {
        this.position = offset;
        return byte;
      }
      offset += 1;
    }
    this.position = offset;
    return END;
  }

  protected scanString(): void {
    const { bytes } = this;
    const length = bytes.length;
    let offset = this.position + 1;
    this.stringStart = offset;
    this.stringEscaped = false;
    for (;;) {
      while (offset < length && stopsString[bytes[offset] as number] === 0) offset += 1;
      if (offset >= length) this.endsInString();
      const byte = bytes[offset] as number;
      if (byte === QUOTE) {
        this.position = offset + 1;
        return;
      }
      if (byte !== BACKSLASH) this.controlCharacter(offset);
      this.stringEscaped = true;
      offset = this.scanEscape(offset);
    }
  }

  /** Like scanString, and computes the hash of the key. */
  protected scanKey(): void {
    const { bytes } = this;
    const length = bytes.length;
    const start = this.position + 1;
    let hash = 0;
    let offset = start;
    while (offset < length) {
      const byte = bytes[offset] as number;
      if (stopsString[byte] === 1) break;
      hash = (Math.imul(hash, 31) + byte) | 0;
      offset += 1;
    }
    this.keyStart = start;
    if (offset < length && bytes[offset] === QUOTE) {
      this.keyEscaped = false;
      this.keyEnd = offset;
      this.position = offset + 1;
      this.keyHash = hash;
      return;
    }
    this.scanString();
    this.keyEscaped = true;
    this.keyEnd = this.position - 1;
    this.keyHash = hashKey(Buffer.from(this.key()));
  }

  /** Validates the escape whose backslash is at `offset`, a surrogate pair as one, and returns the offset after it. */
  private scanEscape(offset: number): number {
    const { bytes } = this;
    if (offset + 1 >= bytes.length) this.endsInString();
    const letter = bytes[offset + 1] as number;
    if (isSimpleEscape[letter] === 1) return offset + 2;
    if (letter !== LOWER_U) {
      this.position = offset;
      this.fail('MALFORMED', `There is no such escape, at byte ${offset}`);
    }
    const unit = this.hexUnit(offset + 2);
    if (unit === 0) {
      this.position = offset;
      this.fail('NUL_CHARACTER', `The character U+0000 cannot be stored, at byte ${offset}`);
    }
    if (unit < 0xd800 || unit > 0xdfff) return offset + 6;
    if (unit <= 0xdbff && bytes[offset + 6] === BACKSLASH && bytes[offset + 7] === LOWER_U) {
      const low = this.hexUnit(offset + 8);
      if (low >= 0xdc00 && low <= 0xdfff) return offset + 12;
    }
    this.position = offset;
    this.fail('LONE_SURROGATE', `Unpaired surrogate at byte ${offset}`);
  }

  private hexUnit(offset: number): number {
    const { bytes } = this;
    let unit = 0;
    for (let i = offset; i < offset + 4; i += 1) {
      if (i >= bytes.length) this.endsInString();
      const byte = bytes[i] as number;
      const lower = byte | 0x20;
      let digit: number;
      if (byte >= ZERO && byte <= NINE) digit = byte - ZERO;
      else if (lower >= 0x61 && lower <= 0x66) digit = lower - 0x57;
      else {
        this.position = i;
        return this.unexpected('four hexadecimal digits');
      }
      unit = unit * 16 + digit;
    }
    return unit;
  }

  protected scanNumber(): void {
    const { bytes } = this;
    const length = bytes.length;
    const start = this.position;
    let offset = start;
    if (bytes[offset] === MINUS) offset += 1;
    const integerStart = offset;
    if (offset < length && bytes[offset] === ZERO) offset += 1;
    else offset = this.scanDigits(offset);
    let digits = offset - integerStart;
    let fractionEnd = offset;
    if (offset < length && bytes[offset] === DOT) {
      offset = this.scanDigits(offset + 1);
      digits += offset - fractionEnd - 1;
      fractionEnd = offset;
    }
    if (digits > this.digitsMax) this.numberOutOfRange(start, `more than ${this.digitsMax} digits`);
    if (offset < length && ((bytes[offset] as number) | 0x20) === LOWER_E) {
      offset += 1;
      const sign = offset < length ? bytes[offset] : END;
      if (sign === MINUS || sign === PLUS) offset += 1;
      const exponentStart = offset;
      offset = this.scanDigits(offset);
      if (!isExponentInRange(bytes, integerStart, fractionEnd, sign === MINUS, exponentStart, offset)) {
        this.numberOutOfRange(start, `an exponent beyond ±${numberExponentMax}`);
      }
    }
    this.position = offset;
  }

  /** Scans at least one digit from `offset`; returns the offset after the last. */
  private scanDigits(offset: number): number {
    const { bytes } = this;
    const length = bytes.length;
    let end = offset;
    while (end < length) {
      const byte = bytes[end] as number;
      if (byte < ZERO || byte > NINE) break;
      end += 1;
    }
    if (end === offset) {
      this.position = offset;
      this.unexpected('a digit');
    }
    return end;
  }

  protected scanLiteral(literal: Buffer): void {
    if (!sameBytes(this.bytes, this.position, literal, 0, literal.length)) this.unexpected('a value');
    this.position += literal.length;
  }

  protected unexpected(expected: string): never {
    if (this.position >= this.bytes.length) this.fail('MALFORMED', `The text ends where ${expected} is expected`);
    this.fail('MALFORMED', `Expected ${expected} at byte ${this.position}`);
  }

  private endsInString(): never {
    this.position = this.bytes.length;
    this.fail('MALFORMED', 'The text ends inside a string');
  }

  private controlCharacter(offset: number): never {
    this.position = offset;
    if (this.bytes[offset] === 0)
      this.fail('NUL_CHARACTER', `The character U+0000 cannot be stored, at byte ${offset}`);
    this.fail('MALFORMED', `A control character in a string must be escaped, at byte ${offset}`);
  }

  private numberOutOfRange(start: number, what: string): never {
    this.position = start;
    this.fail('NUMBER_OUT_OF_RANGE', `A number has ${what}, at byte ${start}`);
  }
}
