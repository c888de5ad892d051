import { hashKey } from './bytes';
import type { JsonReader } from './reader';

interface Entry<T> {
  readonly text: Buffer;
  readonly value: T;
}

/** What is known about some keys, looked up by the key that a reader stands at, without making a string of it. */
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

  find(reader: JsonReader): T | undefined {
    const entries = this.entriesByHash.get(reader.keyHash);
    if (entries === undefined) return undefined;
    for (const { text, value } of entries) if (reader.keyIs(text)) return value;
    return undefined;
  }
}
