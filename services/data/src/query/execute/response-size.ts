/** Room for an answer of which nothing is known. */
const firstBytes = 4_096;
/** What stands around the records, but for a cursor. */
const frameBytes = 512;
/** Records differ a little in length, and how many there are where a page is not full. */
const moreBytes = 1 / 16;
const moreRecords = 1 / 4;

/**
 * What the answers of one kind were like lately, and so how much room the next one needs. A buffer that begins too
 * small is copied into ever larger ones, and V8 collects all garbage anew for every 64 MiB of buffers that are made.
 */
export class AnswerSize {
  #recordBytes: number | undefined;
  #records = Infinity;

  /** Bytes for an answer of at most so many records. */
  expected(recordsMax: number): number {
    if (this.#recordBytes === undefined) return firstBytes;
    const records = Math.min(recordsMax, Math.ceil(this.#records * (1 + moreRecords)));
    return Math.ceil(records * this.#recordBytes * (1 + moreBytes)) + frameBytes;
  }

  /** An answer had so many records; a full one could have had more. */
  learn(records: number, bytes: number, isFull: boolean): void {
    this.#records = isFull ? Infinity : records;
    if (records > 0) this.#recordBytes = bytes / records;
  }
}
