import { createHash } from 'node:crypto';
import type { Readable } from 'node:stream';

/** Positions of bytes, both inclusive. */
export interface ByteRange {
  start: number;
  end: number;
}

/**
 * Bytes that were taken in completely but that nobody can read yet. `keep` makes them an object; once it resolves they
 * survive a power cut. Whatever was neither kept nor discarded when the process ends is thrown away later. So the key
 * can be written down in between, and no crash leaves an object that nobody knows of. `discard` after a `keep` that
 * failed is fine; what it cannot remove is swept.
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
 * Throws STORAGE_FULL when the store is out of space, UNAVAILABLE when it cannot be reached.
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
  /**
   * Throws away what crashes left: what was received and not kept, and objects that are not among the keys that
   * `known` picks from those it is asked about. Nothing that has changed since `before` is touched, for another
   * process may be at work on it. Answers how many things it removed. Absent where a start leaves nothing to sweep.
   */
  sweep?(before: Date, known: (keys: readonly string[]) => Promise<ReadonlySet<string>>): Promise<number>;
  /** A URL under which anybody can read an object for a while. Absent where there is none. */
  presign?(key: string, headers: PresignedHeaders): Promise<string>;
  close?(): void;
}

/** How an object that is read by a presigned URL is described to the reader. */
export interface PresignedHeaders {
  contentType: string;
  contentDisposition: string;
  cacheControl: string;
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
