import { LRUCache } from 'lru-cache';

/** Bytes for a first response, of unknown size. */
const firstBytes = 4_096;
/** Bytes for the text around the records, but for a cursor. */
const frameBytes = 128;
/** Records differ a little in length, and how many there are where a page is not full. */
const moreBytes = 1 / 16;
const moreRecords = 1 / 8;

/**
 * Estimates the size of the next response of one kind from the latest ones. A buffer that starts too small is copied
 * into ever larger ones, and V8 collects garbage for every 64 MiB of new buffers.
 */
export class ResponseSizeEstimate {
  #recordBytes: number | undefined;
  #records = Infinity;

  /** Bytes for a response of at most so many records. */
  expected(recordsMax: number): number {
    if (this.#recordBytes === undefined) return firstBytes;
    const records = Math.min(recordsMax, Math.ceil(this.#records * (1 + moreRecords)));
    return Math.ceil(records * this.#recordBytes * (1 + moreBytes)) + frameBytes;
  }

  /** Records the size of a response; a full one could have had more records. */
  learn(records: number, bytes: number, isFull: boolean): void {
    this.#records = isFull ? Infinity : records;
    if (records > 0) this.#recordBytes = bytes / records;
  }
}

/**
 * Estimates by kind. They are kept longer than plans, because a read that needs fresh counters has its own relation and
 * plans.
 */
const estimates = new LRUCache<string, ResponseSizeEstimate>({ max: 4_096 });

export function responseSizeOf(kind: string): ResponseSizeEstimate {
  let estimate = estimates.get(kind);
  if (!estimate) estimates.set(kind, (estimate = new ResponseSizeEstimate()));
  return estimate;
}
