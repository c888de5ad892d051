import type { RowReader } from './rows';

/**
 * A first row that statements have in common. Of those that are sent together on a connection the first reads it, for
 * the others too: its snapshot is no older than their requests, and no newer than theirs.
 */
export interface SharedRow {
  /** Statements with the same key have the same row. */
  key: string;
  /** The text of the statement without the row. */
  rest: string;
}

/** The reader of a statement with a shared row. */
export interface SharingReader<T> extends RowReader<T> {
  /** The statement is sent without the row, which the other reader gets before. */
  follow(leader: SharingReader<unknown>): void;
  /** The statement is sent once more: a shared row that it reads may be newer than the results of its followers. */
  resent(): void;
}

/** The readers that get a shared row, of the statements that are sent together. */
export class RowLeaders {
  readonly #readers = new Map<string, SharingReader<unknown>>();

  /** The reader that gets the row of the key, or undefined: `reader` does then. */
  leaderOf(key: string, reader: SharingReader<unknown>): SharingReader<unknown> | undefined {
    const leader = this.#readers.get(key);
    if (!leader) this.#readers.set(key, reader);
    return leader;
  }

  /** The statements were sent. */
  clear(): void {
    if (this.#readers.size > 0) this.#readers.clear();
  }
}
