import { createHash } from 'node:crypto';
import type { Readable } from 'node:stream';

/** Positions of bytes, both inclusive. */
export interface ByteRange {
  start: number;
  end: number;
}

/**
 * Bytes that were taken in completely and would survive a power cut, but that nobody can read yet. `keep` makes them
 * an object; whatever was neither kept nor discarded when the process ends is thrown away at the next start. So the
 * key can be written down in between, and no crash leaves an object that nobody knows of.
 */
export interface ReceivedObject {
  key: string;
  sizeBytes: number;
  /** Hex. */
  sha256: string;
  keep(): Promise<void>;
  discard(): Promise<void>;
}

/**
 * Where the bytes of blobs are. Keys are made by the store from random bits, never from anything that a user chose.
 * Throws UNAVAILABLE when the store is out of space or cannot be reached.
 */
export interface ObjectStore {
  /**
   * Takes in a stream at the pace of the store: what is held in memory at once is bounded. An error of the source is
   * thrown on, and nothing is left.
   */
  receive(source: AsyncIterable<Buffer>): Promise<ReceivedObject>;
  /** The bytes of an object, or a range of them. Whoever takes the stream destroys it. Undefined: there is no such object. */
  read(key: string, range?: ByteRange): Promise<Readable | undefined>;
  /** Undefined: there is no such object. */
  stat(key: string): Promise<{ sizeBytes: number } | undefined>;
  /** Deleting what is not there is fine. */
  delete(key: string): Promise<void>;
  /** Writes and reads a few bytes; throws when that fails. */
  probe(): Promise<void>;
}

/** Counts and hashes what flows through. */
export interface Measure {
  through(source: AsyncIterable<Buffer>): AsyncGenerator<Buffer>;
  /** Once everything has flowed through. */
  result(): { sizeBytes: number; sha256: string };
}

export function createMeasure(): Measure {
  const hash = createHash('sha256');
  let sizeBytes = 0;
  return {
    async *through(source) {
      for await (const chunk of source) {
        sizeBytes += chunk.length;
        hash.update(chunk);
        yield chunk;
      }
    },
    result: () => ({ sizeBytes, sha256: hash.digest('hex') }),
  };
}
