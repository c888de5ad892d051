import { decodeString, sameBytes } from './bytes';

/** Up to so many keys of one object are compared one by one; for more a Set is cheaper. */
const comparedKeysMax = 32;

/**
 * The keys of all open objects, to detect duplicates. Small objects, the most frequent, need no allocation: their keys
 * are on one stack, as extents in the buffer with their hashes.
 */
export class SeenKeys {
  private count = 0;
  private readonly hashes: number[] = [];
  private readonly starts: number[] = [];
  private readonly ends: number[] = [];
  // Both are indexed by level; entries are reused.
  private readonly firstAt: number[] = [0];
  private readonly setAt: (Set<string> | undefined)[] = [undefined];

  constructor(private readonly bytes: Buffer) {}

  enter(level: number): void {
    this.firstAt[level] = this.count;
    this.setAt[level] = undefined;
  }

  leave(level: number): void {
    this.count = this.firstAt[level] as number;
  }

  /** Adds a key of the object at that level, the innermost; false when it has it already. */
  add(level: number, start: number, end: number, hash: number, escaped: boolean): boolean {
    const { bytes, count } = this;
    const first = this.firstAt[level] as number;
    let set = this.setAt[level];
    if (set === undefined && !escaped && count - first < comparedKeysMax) {
      for (let i = first; i < count; i += 1) {
        if (this.hashes[i] !== hash) continue;
        const seenStart = this.starts[i] as number;
        const size = (this.ends[i] as number) - seenStart;
        if (size === end - start && sameBytes(bytes, start, bytes, seenStart, size)) return false;
      }
      this.hashes[count] = hash;
      this.starts[count] = start;
      this.ends[count] = end;
      this.count = count + 1;
      return true;
    }
    // With escapes a key can be written in several ways, so decoded keys are compared.
    if (set === undefined) {
      set = new Set();
      for (let i = first; i < count; i += 1) {
        set.add(decodeString(bytes, this.starts[i] as number, this.ends[i] as number, false));
      }
      this.setAt[level] = set;
    }
    const sizeBefore = set.size;
    return set.add(decodeString(bytes, start, end, escaped)).size > sizeBefore;
  }
}
