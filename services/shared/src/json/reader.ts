import { isUtf8 } from 'node:buffer';
import {
  QUOTE,
  COMMA,
  MINUS,
  ZERO,
  NINE,
  COLON,
  OPEN_BRACKET,
  BACKSLASH,
  CLOSE_BRACKET,
  LOWER_F,
  LOWER_N,
  LOWER_T,
  OPEN_BRACE,
  CLOSE_BRACE,
  decodeString,
  sameBytes,
} from './bytes';
import type { JsonErrorReason } from './error';
import { numberDigitsMax } from './number-range';
import { END, JsonScanner } from './scanner';
import { SeenKeys } from './seen-keys';

export interface JsonReaderOptions {
  maxDepth: number;
  digitsMax?: number;
}

export type JsonType = 'object' | 'array' | 'string' | 'number' | 'boolean' | 'null';

/** The largest limit of depth: the reader recurses once per level. */
const readerDepthMax = 1000;
/** Characters of a path that an error shows. */
const pathLengthMax = 200;

const forbiddenKey = Buffer.from('__proto__');

const TRUE = Buffer.from('true');
const FALSE = Buffer.from('false');
const NULL = Buffer.from('null');

/**
 * A strict pull parser of RFC 8259 over the raw bytes of one text: the caller peeks at the type of the next value, and
 * reads, skips or enters it. In every case the whole value is validated: the grammar, UTF-8 without U+0000 and lone
 * surrogates, depth, duplicate keys, the key `__proto__`, and the bounds of numbers. Postgres accepts as jsonb what it
 * accepts.
 *
 * Every method may throw a JsonError; the reader must not be used after it.
 */
export class JsonReader extends JsonScanner {
  /** Objects and arrays that are open. */
  depth = 0;
  /** The largest `depth`. A caller may change it while reading, for limits relative to a nested value. */
  maxDepth: number;
  // One entry per level, reused, so that nothing is allocated.
  private readonly isObjectAt: boolean[] = [false];
  private readonly countAt: number[] = [0];
  private readonly keyStartAt: number[] = [0];
  private readonly keyEndAt: number[] = [0];

  private readonly seenKeys: SeenKeys;

  /** `digitsMax`: of a number, by default as many as one in a document may have. */
  constructor(bytes: Buffer, options: JsonReaderOptions) {
    super(bytes, options.digitsMax ?? numberDigitsMax);
    if (!(options.maxDepth <= readerDepthMax)) throw new RangeError(`maxDepth may be at most ${readerDepthMax}`);
    this.maxDepth = options.maxDepth;
    this.seenKeys = new SeenKeys(bytes);
    if (bytes.length >= 3 && bytes[0] === 0xef && bytes[1] === 0xbb && bytes[2] === 0xbf) {
      this.fail('BYTE_ORDER_MARK', 'The text must not begin with a byte-order mark');
    }
    if (!isUtf8(bytes)) this.fail('INVALID_UTF8', 'The text is not valid UTF-8');
  }

  /** The type of the next value, judged by its first byte; `position` is then that byte. */
  peekType(): JsonType {
    const byte = this.peekByte();
    switch (byte) {
      case QUOTE:
        return 'string';
      case OPEN_BRACE:
        return 'object';
      case OPEN_BRACKET:
        return 'array';
      case LOWER_T:
      case LOWER_F:
        return 'boolean';
      case LOWER_N:
        return 'null';
      default:
        if (byte === MINUS || (byte >= ZERO && byte <= NINE)) return 'number';
        return this.unexpected('a value');
    }
  }

  /** Validates the next value and returns where it starts; it ends at `position`. */
  skipValue(): number {
    const byte = this.peekByte();
    const start = this.position;
    switch (byte) {
      case QUOTE:
        this.scanString();
        break;
      case OPEN_BRACE:
        this.enterObject();
        while (this.nextMember()) this.skipValue();
        break;
      case OPEN_BRACKET:
        this.enterArray();
        while (this.nextElement()) this.skipValue();
        break;
      case LOWER_T:
        this.scanLiteral(TRUE);
        break;
      case LOWER_F:
        this.scanLiteral(FALSE);
        break;
      case LOWER_N:
        this.scanLiteral(NULL);
        break;
      default:
        if (byte !== MINUS && !(byte >= ZERO && byte <= NINE)) this.unexpected('a value');
        this.scanNumber();
    }
    return start;
  }

  /** Reads a string and returns its decoded value. */
  readString(): string {
    if (this.peekType() !== 'string') this.fail('UNEXPECTED_TYPE', 'Must be a string');
    this.scanString();
    return decodeString(this.bytes, this.stringStart, this.position - 1, this.stringEscaped);
  }

  /** Reads a number and returns its text as written. */
  readNumber(): string {
    if (this.peekType() !== 'number') this.fail('UNEXPECTED_TYPE', 'Must be a number');
    const start = this.position;
    this.scanNumber();
    return this.bytes.toString('latin1', start, this.position);
  }

  readBoolean(): boolean {
    if (this.peekType() !== 'boolean') this.fail('UNEXPECTED_TYPE', 'Must be true or false');
    const value = this.bytes[this.position] === LOWER_T;
    this.scanLiteral(value ? TRUE : FALSE);
    return value;
  }

  readNull(): null {
    if (this.peekType() !== 'null') this.fail('UNEXPECTED_TYPE', 'Must be null');
    this.scanLiteral(NULL);
    return null;
  }

  /** Enters the next value, which must be an object. Then: `while (reader.nextMember()) …take the value…`. */
  enterObject(): void {
    if (this.peekByte() !== OPEN_BRACE) this.wrongType('Must be an object');
    this.enter(true);
  }

  /** Enters the next value, which must be an array. Then: `while (reader.nextElement()) …take the value…`. */
  enterArray(): void {
    if (this.peekByte() !== OPEN_BRACKET) this.wrongType('Must be an array');
    this.enter(false);
  }

  /** Reads the next key of the object that was entered, or leaves the object and returns false. */
  nextMember(): boolean {
    const depth = this.depth;
    const count = this.countAt[depth] as number;
    let byte = this.peekByte();
    if (byte === CLOSE_BRACE) {
      this.position += 1;
      this.seenKeys.leave(depth);
      this.depth = depth - 1;
      return false;
    }
    if (count > 0) {
      if (byte !== COMMA) this.unexpected('"," or "}"');
      this.position += 1;
      byte = this.peekByte();
    }
    if (byte !== QUOTE) this.unexpected('a key in quotes');
    this.scanKey();
    this.countAt[depth] = count + 1;
    this.keyStartAt[depth] = this.keyStart;
    this.keyEndAt[depth] = this.keyEnd;
    this.refuseForbiddenKey();
    if (!this.seenKeys.add(depth, this.keyStart, this.keyEnd, this.keyHash, this.keyEscaped)) {
      this.failAtKey('DUPLICATE_KEY', 'An object has the same key twice');
    }
    if (this.peekByte() !== COLON) this.unexpected('":"');
    this.position += 1;
    return true;
  }

  /** Goes to the next element of the array that was entered, or leaves the array and returns false. */
  nextElement(): boolean {
    const depth = this.depth;
    const count = this.countAt[depth] as number;
    const byte = this.peekByte();
    if (byte === CLOSE_BRACKET) {
      this.position += 1;
      this.depth = depth - 1;
      return false;
    }
    if (count > 0) {
      if (byte !== COMMA) this.unexpected('"," or "]"');
      this.position += 1;
    }
    this.countAt[depth] = count + 1;
    return true;
  }

  /** Whether the current key, decoded, is this UTF-8 text. */
  keyIs(text: Buffer): boolean {
    if (this.keyEscaped) return this.key() === text.toString();
    return (
      this.keyEnd - this.keyStart === text.length &&
      sameBytes(this.bytes, this.keyStart, text, 0, this.keyEnd - this.keyStart)
    );
  }

  /** Demands that nothing but white space is left. */
  end(): void {
    if (this.peekByte() !== END) this.unexpected('the end of the text');
  }

  private enter(isObject: boolean): void {
    const depth = this.depth + 1;
    if (depth > this.maxDepth) {
      this.fail('TOO_DEEP', `The value has more than ${this.maxDepth} levels, at byte ${this.position}`);
    }
    this.depth = depth;
    this.isObjectAt[depth] = isObject;
    this.countAt[depth] = 0;
    if (isObject) this.seenKeys.enter(depth);
    this.position += 1;
  }

  private refuseForbiddenKey(): void {
    const isForbidden = this.keyEscaped
      ? this.key() === '__proto__'
      : this.keyEnd - this.keyStart === 9 && sameBytes(this.bytes, this.keyStart, forbiddenKey, 0, 9);
    if (isForbidden) this.failAtKey('FORBIDDEN_KEY', 'The key "__proto__" is not allowed');
  }

  protected override path(): string {
    let path = '';
    for (let level = 1; level <= this.depth && path.length < pathLengthMax; level += 1) {
      const count = this.countAt[level] as number;
      if (count === 0) break;
      if (!this.isObjectAt[level]) {
        path += `[${count - 1}]`;
        continue;
      }
      const start = this.keyStartAt[level] as number;
      const end = this.keyEndAt[level] as number;
      path +=
        (path === '' ? '' : '.') +
        decodeString(this.bytes, start, end, this.bytes.subarray(start, end).includes(BACKSLASH));
    }
    return path.length > pathLengthMax ? `${path.slice(0, pathLengthMax)}…` : path;
  }

  private failAtKey(reason: JsonErrorReason, message: string): never {
    this.position = this.keyStart - 1;
    this.fail(reason, `${message}, at byte ${this.position}`);
  }

  private wrongType(message: string): never {
    this.peekType();
    this.fail('UNEXPECTED_TYPE', message);
  }
}
