import { createHash } from 'node:crypto';
import type { Readable } from 'node:stream';

/** Offsets of bytes, both inclusive. */
export interface ByteRange {
  start: number;
  end: number;
}

/**
 * The first phase of an upload: all bytes have arrived, but nothing can read them yet. `keep` makes them an object that
 * is durable once it resolves. Bytes that are neither kept nor discarded when the process ends are removed by a sweep.
 * So the caller can record the key in between, and no crash leaves an unknown object. `discard` may follow a `keep`
 * that failed; a sweep removes what it cannot.
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
 * Stores the bytes of blobs. The store creates the keys from random bits, never from user input. Throws STORAGE_FULL
 * when the store is out of space, UNAVAILABLE when it cannot be reached.
 */
export interface ObjectStore {
  /**
   * Receives a stream with backpressure, in bounded memory. An error of the source is rethrown, and nothing is left.
   */
  receive(source: AsyncIterable<Buffer>): Promise<ReceivedObject>;
  /** An object or a range of it; undefined when there is no such object. The caller destroys the stream. */
  read(key: string, range?: ByteRange): Promise<Readable | undefined>;
  /** Undefined when there is no such object. */
  stat(key: string): Promise<{ sizeBytes: number } | undefined>;
  /** Succeeds for an object that does not exist. */
  delete(key: string): Promise<void>;
  /** Writes and reads a few bytes, for health checks. */
  probe(): Promise<void>;
  /**
   * Removes what crashes left: bytes that were received and not kept, and objects whose keys `known` does not return.
   * Spares everything that changed after `before`, for it may belong to an upload under way. Returns how many it
   * removed. Absent where opening the store removes such things.
   */
  sweep?(before: Date, known: (keys: readonly string[]) => Promise<ReadonlySet<string>>): Promise<number>;
  /** A URL for clients that gives read access to an object for some minutes. Absent where clients get none. */
  presign?(key: string, headers: PresignedHeaders): Promise<string>;
  /** A URL from which the gateway can read an object at once, in ranges too. Absent where it reads through blobs. */
  readUrl?(key: string): Promise<string>;
  close?(): void;
}

/** Headers of the response to a presigned URL. */
export interface PresignedHeaders {
  contentType: string;
  contentDisposition: string;
  cacheControl: string;
}

/** Counts and hashes the bytes of a stream. */
export interface Measure {
  through(source: AsyncIterable<Buffer>): AsyncGenerator<Buffer>;
  /** Returns the size and the digest; to be called once, at the end of the stream. */
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
