import { ServiceError } from '@granary/shared/errors';
import { batchBytesMax, documentKey, type PendingWrite, type Write } from './write';
import { sameKey, type IdempotencyKey } from '@granary/shared/idempotency/key';

/** A batch closes at so many writes, or at so many bytes. */
const batchWritesMax = 500;
/** Writes of one app that may wait, and their bytes; beyond, the answer is 429. */
const waitingWritesMax = 5_000;
const waitingBytesMax = 64 * 1024 * 1024;

/** The waiting writes of one app: bulks, and small ones that share batches. */
export class WriteQueue {
  private small: PendingWrite[] = [];
  private readonly bulks: PendingWrite[] = [];
  private bytes = 0;
  private onAdded = () => {};
  /** Whether the last batch left a small write behind because a preload blocks it. */
  hasBlocked = false;

  get size(): number {
    return this.small.length + this.bulks.length;
  }

  waiting(): readonly PendingWrite[] {
    return [...this.small, ...this.bulks];
  }

  get nextBulk(): PendingWrite | undefined {
    return this.bulks[0];
  }

  /** Throws TOO_MANY_REQUESTS when the queue is full. */
  add(pending: PendingWrite): void {
    if (this.size >= waitingWritesMax || this.bytes >= waitingBytesMax) {
      throw new ServiceError('RESOURCE_EXHAUSTED', 'TOO_MANY_REQUESTS', 'Too many writes of this app are waiting');
    }
    this.bytes += pending.write.bytes;
    if (pending.write.sizeClass === 'small') this.small.push(pending);
    else this.bulks.push(pending);
    this.onAdded();
  }

  /** Resolves when the next write is added. */
  added(): Promise<void> {
    return new Promise((resolve) => (this.onAdded = resolve));
  }

  takeBulk(): PendingWrite {
    const bulk = this.bulks.shift()!;
    this.bytes -= bulk.write.bytes;
    return bulk;
  }

  /**
   * Takes the small writes of the next batch, none when all of them are blocked. A second use of an Idempotency-Key
   * waits for the batch after the first, so that it finds the answer kept by it; so does a write that depends on the
   * present version of a document which the batch changes, and one whose companion change is of the same subject.
   */
  takeSmall(isBlocked: (write: Write) => boolean): PendingWrite[] {
    const batch: PendingWrite[] = [];
    const left: PendingWrite[] = [];
    const keys: IdempotencyKey[] = [];
    const subjects = new Set<string>();
    const changes = new ChangedDocuments(batch);
    let bytes = 0;
    let isClosed = false;
    this.hasBlocked = false;
    for (const pending of this.small) {
      const { bytes: size, idempotency, companion } = pending.write;
      const isRepeated =
        (idempotency !== undefined && keys.some((key) => sameKey(key, idempotency))) ||
        (companion !== undefined && subjects.has(companion.subject));
      const isDependent = !isClosed && changes.mayAffect(pending.write);
      isClosed ||= batch.length >= batchWritesMax || (batch.length > 0 && bytes + size > batchBytesMax);
      const blocked = isBlocked(pending.write);
      this.hasBlocked ||= blocked;
      if (isClosed || isRepeated || isDependent || blocked) {
        left.push(pending);
        continue;
      }
      batch.push(pending);
      bytes += size;
      if (idempotency) keys.push(idempotency);
      if (companion) subjects.add(companion.subject);
    }
    this.small = left;
    this.bytes -= bytes;
    return batch;
  }
}

/** The documents that the writes of a growing batch change. */
class ChangedDocuments {
  /** How many writes of the batch are in `keys`: they are added only when a write asks. */
  private added = 0;
  private readonly keys = new Set<string>();

  constructor(private readonly batch: readonly PendingWrite[]) {}

  /** Whether a write depends on a document that the batch changes, or may change. */
  mayAffect({ reads }: Write): boolean {
    if (!reads) return false;
    for (; this.added < this.batch.length; this.added += 1) {
      const { write } = this.batch[this.added]!;
      const ids = write.ids();
      for (const name of write.collections) {
        if (!ids) this.keys.add(name);
        else for (const id of ids.set) this.keys.add(documentKey(name, id));
      }
    }
    return reads.some(({ collection, id }) => this.keys.has(collection) || this.keys.has(documentKey(collection, id)));
  }
}
