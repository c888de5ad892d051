import { ServiceError } from '@granary/shared/errors';
import type { CollectionHandle } from './catalog';
import type { Committed, Link } from './commits';
import type { Head } from './head';
import { sameKey, type IdempotencyKey } from './idempotency';
import type { PreparedDocument } from './prepare';

/** A batch closes at so many writes, or at so many bytes of bodies. */
const batchWritesMax = 500;
const batchBytesMax = 1024 * 1024;
/** A write that is larger is a batch of its own. */
const bulkBytes = 128 * 1024;
/** Writes of one app that may wait; beyond, a caller is told to come back. */
const waitingWritesMax = 5_000;
const waitingBytesMax = 64 * 1024 * 1024;

/** One link that a write makes, with the documents that belong to it. */
export interface BuiltLink {
  link: Link;
  documents: readonly PreparedDocument[];
}

/** One call that changes documents: it commits whole or not at all, whatever shares its batch. */
export interface Write {
  ticketId: string;
  operation: 'store' | 'upload';
  collection: string;
  userAddress: string | null;
  idempotency: IdempotencyKey | undefined;
  /** Size of what is to be written, or of what the caller sent if that is not known yet. */
  bytes: number;
  /**
   * The links of this write after `head`, for a collection as it is now (undefined: it will be made). Has no effect
   * but its result, for it runs again when a batch does; throws a ServiceError to refuse this write alone.
   */
  build(handle: CollectionHandle | undefined, head: Head): BuiltLink[];
}

/** A write that waits, and how its caller is answered. */
export interface Waiting {
  write: Write;
  resolve: (committed: Committed) => void;
  reject: (error: unknown) => void;
}

/** Whether a batch is one write that is too large to share it. */
export const isBulk = ([first]: readonly Waiting[]): boolean => first !== undefined && first.write.bytes > bulkBytes;

/**
 * The writes of one app that wait. Bulks and batches of small writes take turns where both wait, so that a small one
 * waits for one bulk and not for all that came before it.
 */
export class WriteQueue {
  private small: Waiting[] = [];
  private readonly bulks: Waiting[] = [];
  private bulkWasLast = false;
  private bytes = 0;

  get size(): number {
    return this.small.length + this.bulks.length;
  }

  /** Throws TOO_MANY_REQUESTS when too much waits already. */
  add(one: Waiting): void {
    if (this.size >= waitingWritesMax || this.bytes >= waitingBytesMax) {
      throw new ServiceError('RESOURCE_EXHAUSTED', 'TOO_MANY_REQUESTS', 'Too many writes of this app are waiting');
    }
    this.bytes += one.write.bytes;
    if (isBulk([one])) this.bulks.push(one);
    else this.small.push(one);
  }

  /** The bulk that is the next batch, if that is one. */
  get nextBulk(): Waiting | undefined {
    return this.small.length === 0 || !this.bulkWasLast ? this.bulks[0] : undefined;
  }

  /** Takes the writes of the next batch; none when nothing waits. */
  takeBatch(): Waiting[] {
    const bulk = this.nextBulk;
    if (bulk) this.bulks.shift();
    this.bulkWasLast = bulk !== undefined;
    const batch = bulk ? [bulk] : this.takeSmall();
    for (const { write } of batch) this.bytes -= write.bytes;
    return batch;
  }

  /** A second use of an Idempotency-Key waits for the batch after the first. */
  private takeSmall(): Waiting[] {
    const batch: Waiting[] = [];
    const left: Waiting[] = [];
    const keys: IdempotencyKey[] = [];
    let bytes = 0;
    let closed = false;
    for (const one of this.small) {
      const { bytes: size, idempotency } = one.write;
      const repeated = idempotency !== undefined && keys.some((key) => sameKey(key, idempotency));
      closed ||= batch.length >= batchWritesMax || (batch.length > 0 && bytes + size > batchBytesMax);
      if (closed || repeated) {
        left.push(one);
        continue;
      }
      batch.push(one);
      bytes += size;
      if (idempotency) keys.push(idempotency);
    }
    this.small = left;
    return batch;
  }
}
