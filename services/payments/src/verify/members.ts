import { JsonNumber, type JsonObject, type JsonValue } from '@granary/shared/json/value';
import { Refusal, type Reason } from './refusal';

/** The members of an object of a request; what is missing or of another type is refused with `reason`. */
export class Members {
  constructor(
    private readonly object: JsonObject,
    private readonly path: string,
    private readonly reason: Reason,
  ) {}

  has(name: string): boolean {
    return this.object.has(name);
  }

  text(name: string): string {
    const value = this.object.get(name);
    return typeof value === 'string' ? value : this.refuse(name, 'must be a string');
  }

  /** Null counts as absent, as in the official clients. */
  optionalText(name: string): string | undefined {
    return this.object.get(name) == null ? undefined : this.text(name);
  }

  /** A whole number in a string, without a sign, an exponent or leading zeros. */
  amount(name: string): bigint {
    return (
      wholeOf(this.text(name)) ?? this.refuse(name, 'must be a whole number in decimal digits, of at most 256 bits')
    );
  }

  /** A whole number as a string, or as a JSON number as some clients write it. */
  whole(name: string): bigint {
    const value = this.object.get(name);
    const text = value instanceof JsonNumber ? value.text : value;
    const whole = typeof text === 'string' ? wholeOf(text) : undefined;
    return whole ?? this.refuse(name, 'must be a whole number in decimal digits, of at most 256 bits');
  }

  /** A whole JSON number from 1 to `max`. */
  count(name: string, max: number): number {
    const value = this.object.get(name);
    const count = value instanceof JsonNumber && /^[1-9]\d{0,15}$/.test(value.text) ? value.toNumber() : 0;
    return count >= 1 && count <= max ? count : this.refuse(name, `must be a whole number from 1 to ${max}`);
  }

  child(name: string): Members {
    return new Members(this.map(name), `${this.path}.${name}`, this.reason);
  }

  /** Empty where there is none. */
  optionalObject(name: string): Members {
    return this.object.get(name) == null
      ? new Members(new Map(), `${this.path}.${name}`, this.reason)
      : this.child(name);
  }

  map(name: string): JsonObject {
    const value = this.object.get(name);
    return value instanceof Map ? value : this.refuse(name, 'must be an object');
  }

  refuse(name: string, message: string): never {
    throw new Refusal(this.reason, `${this.path}.${name} ${message}`);
  }
}

const uint256Max = 2n ** 256n - 1n;

function wholeOf(text: string): bigint | undefined {
  const value = /^(0|[1-9]\d{0,77})$/.test(text) ? BigInt(text) : undefined;
  return value !== undefined && value <= uint256Max ? value : undefined;
}

/** Whether two values are the same, whatever the order of members. Numbers are compared as they are written. */
export function sameValue(one: JsonValue | undefined, other: JsonValue | undefined): boolean {
  if (one instanceof JsonNumber) return other instanceof JsonNumber && one.text === other.text;
  if (Array.isArray(one)) {
    return (
      Array.isArray(other) && one.length === other.length && one.every((value, index) => sameValue(value, other[index]))
    );
  }
  if (one instanceof Map) {
    if (!(other instanceof Map) || one.size !== other.size) return false;
    for (const [key, value] of one) if (!other.has(key) || !sameValue(value, other.get(key))) return false;
    return true;
  }
  return one === other;
}
