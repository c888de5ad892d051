import type { Position } from './cursor';
import type { LogEntry, LogWindow } from './log';

/** The entries of a log that one window takes, from the first on. */
export class LogPart {
  entries: readonly LogEntry[];
  end: Position;
  completeHeight: bigint;
  isWhole: boolean;

  constructor(readonly log: LogWindow) {
    this.entries = log.entries;
    this.end = log.end;
    this.completeHeight = log.completeHeight;
    this.isWhole = log.isWhole;
  }

  /** The hash of the commit at the end. */
  get hash(): Buffer {
    return this.log.hashes.get(this.end.height)!;
  }

  /** Leaves the entries from that index on, which is not 0, to the next window; none where there are no more. */
  endBefore(index: number): void {
    const first = this.entries[index];
    if (!first) return;
    const last = this.entries[index - 1]!;
    this.entries = this.entries.slice(0, index);
    this.end = { height: last.height, place: last.place + 1 };
    this.completeHeight = first.height - 1n;
    this.isWhole = false;
  }

  /** Leaves the entries of the collections beyond so many to the next window. */
  limitCollections(max: number): void {
    const names = new Set<string>();
    const beyond = this.entries.findIndex(({ collection }) => names.add(collection).size > max);
    if (beyond > 0) this.endBefore(beyond);
  }
}
