import { comparePositions, type Position } from './cursor';
import type { LogEntry, LogWindow } from './log';
import type { RowPage, ViewEntry } from './view-rows';

/** The entries of a log that one window takes, from the first on: of documents, and of rows of views. */
export class LogPart {
  /** In the order of their positions. Changed rows come before the entries of their place. */
  entries: ReadonlyArray<LogEntry | ViewEntry>;
  end: Position;
  completeHeight: bigint;
  isWhole: boolean;
  private readonly hashes: Map<bigint, Buffer>;

  constructor(log: LogWindow) {
    this.entries = log.entries;
    this.end = log.end;
    this.completeHeight = log.completeHeight;
    this.isWhole = log.isWhole;
    this.hashes = new Map(log.hashes);
  }

  /** The entries that are not of rows of views. */
  get logEntries(): LogEntry[] {
    return this.entries.filter((entry) => entry.kind !== 'row');
  }

  /** The hash of the commit at the end. */
  get hash(): Buffer {
    return this.hashOf(this.end.height);
  }

  /** The hash of a commit of which the part has something. */
  hashOf(height: bigint): Buffer {
    return this.hashes.get(height)!;
  }

  /** Leaves the entries from that index on, which is not 0, to the next window; none where there are no more. */
  endBefore(index: number): void {
    const first = this.entries[index];
    if (!first) return;
    this.entries = this.entries.slice(0, index);
    this.end = positionBehind(this.entries.at(-1)!);
    this.completeHeight = first.height - 1n;
    this.isWhole = false;
  }

  /** Leaves the entries of the collections beyond so many to the next window. */
  limitCollections(max: number): void {
    const names = new Set<string>();
    const beyond = this.logEntries.findIndex(({ collection }) => names.add(collection).size > max);
    if (beyond > 0) this.endBefore(beyond);
  }

  /** Adds the changed rows up to the end; where they are only the first of them, the part ends behind the last one. */
  addRows({ entries, isCut }: RowPage): void {
    const last = entries.at(-1);
    if (!last) return;
    for (const { height, hash } of entries) this.hashes.set(height, hash);
    const all = [...this.entries, ...entries].sort((one, other) => comparePositions(startOf(one), startOf(other)));
    this.entries = all;
    if (!isCut) return;
    this.entries = all.slice(0, all.indexOf(last) + 1);
    this.end = positionBehind(last);
    this.completeHeight = last.height - 1n;
    this.isWhole = false;
  }
}

/** The position of an entry in the order: a row stands before the entry of its place. */
const startOf = (entry: LogEntry | ViewEntry): Position => ({
  height: entry.height,
  place: entry.place,
  row: entry.kind === 'row' ? entry.row : rowsEnd,
});

/** Behind all rows of a place. */
const rowsEnd = 2n ** 63n;

/** The position behind an entry. */
export function positionBehind(entry: LogEntry | ViewEntry): Position {
  const { height, place } = entry;
  return entry.kind === 'row' ? { height, place, row: entry.row } : { height, place: place + 1, row: 0n };
}
