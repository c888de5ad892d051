import { hashKey } from '@granary/shared/json/bytes';
import type { JsonReader } from '@granary/shared/json/reader';

interface Entry<T> {
  readonly text: Buffer;
  readonly value: T;
}

/** Values by key, looked up by the current key of a reader without decoding it. */
export class KeyTable<T> {
  private readonly entriesByHash = new Map<number, Entry<T>[]>();

  constructor(values: ReadonlyMap<string, T>) {
    for (const [key, value] of values) {
      const text = Buffer.from(key);
      const hash = hashKey(text);
      const entries = this.entriesByHash.get(hash);
      if (entries === undefined) this.entriesByHash.set(hash, [{ text, value }]);
      else entries.push({ text, value });
    }
  }

  /** All keys with their values. */
  *entries(): Iterable<readonly [string, T]> {
    for (const entries of this.entriesByHash.values())
      for (const { text, value } of entries) yield [text.toString(), value];
  }

  find(reader: JsonReader): T | undefined {
    const entries = this.entriesByHash.get(reader.keyHash);
    if (entries === undefined) return undefined;
    for (const { text, value } of entries) if (reader.keyIs(text)) return value;
    return undefined;
  }
}
