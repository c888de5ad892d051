import { JsonReader, type JsonReaderOptions } from './reader';

/** A number as its text, because a double would round it. */
export class JsonNumber {
  constructor(readonly text: string) {}

  /** The nearest double. */
  toNumber(): number {
    return Number(this.text);
  }

  /** Whether the value is whole, exactly: `1`, `1.0` and `1.5e1` are. */
  get isInteger(): boolean {
    const [mantissa = '', exponent = '0'] = this.text.toLowerCase().split('e');
    const [whole = '', fraction = ''] = mantissa.replace('-', '').split('.');
    const digits = whole + fraction;
    const significant = digits.replace(/0+$/, '');
    const decimals = fraction.length - Number(exponent) - (digits.length - significant.length);
    return significant === '' || decimals <= 0;
  }
}

/** A Map, never a plain object: its keys come from users. */
export type JsonObject = Map<string, JsonValue>;
export type JsonValue = null | boolean | string | JsonNumber | JsonValue[] | JsonObject;

/** Reads a whole text, such as the body of a control call. Throws JsonError. */
export function readJson(bytes: Buffer, options: JsonReaderOptions): JsonValue {
  const reader = new JsonReader(bytes, options);
  const value = readValue(reader);
  reader.end();
  return value;
}

/** Reads the next value. Throws JsonError. */
export function readValue(reader: JsonReader): JsonValue {
  switch (reader.peekType()) {
    case 'null':
      return reader.readNull();
    case 'boolean':
      return reader.readBoolean();
    case 'string':
      return reader.readString();
    case 'number':
      return new JsonNumber(reader.readNumber());
    case 'array': {
      const elements: JsonValue[] = [];
      reader.enterArray();
      while (reader.nextElement()) elements.push(readValue(reader));
      return elements;
    }
    case 'object': {
      const members: JsonObject = new Map();
      reader.enterObject();
      while (reader.nextMember()) {
        const key = reader.key();
        members.set(key, readValue(reader));
      }
      return members;
    }
  }
}

/** The JSON text of a value, without white space; numbers as they were written. */
export function toText(value: JsonValue): string {
  if (value instanceof JsonNumber) return value.text;
  if (Array.isArray(value)) return `[${value.map(toText).join(',')}]`;
  if (value instanceof Map) {
    return `{${[...value].map(([key, member]) => `${JSON.stringify(key)}:${toText(member)}`).join(',')}}`;
  }
  return JSON.stringify(value);
}

/**
 * The value as JSON.parse would return it, for small bodies that a schema validates next. Numbers become doubles. Plain
 * objects are safe because the reader refuses the key `__proto__`.
 */
export function toPlain(value: JsonValue): unknown {
  if (value instanceof JsonNumber) return value.toNumber();
  if (Array.isArray(value)) return value.map(toPlain);
  if (value instanceof Map) return Object.fromEntries([...value].map(([key, member]) => [key, toPlain(member)]));
  return value;
}
