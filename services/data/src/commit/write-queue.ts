import { ServiceError } from '@granary/shared/errors';
import type { CollectionRef } from '../catalog/collection';
import type { Committed, Link } from './commit-log';
import type { Head } from './head';
import { sameKey, type IdempotencyKey } from './idempotency';
import type { PreparedDocument } from '../documents/parser';

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

export interface DocumentIds {
  set: ReadonlySet<string>;
  /** Documents, of which two may have the same id. */
  count: number;
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
  /** The ids of its documents; undefined while they are not known. */
  ids: () => DocumentIds | undefined;
  /**
   * The links of this write after `head`, for a collection as it is now (undefined: it will be made). Has no effect
   * but its result, for it runs again when a batch does; throws a ServiceError to refuse this write alone.
   */
  build(handle: CollectionRef | undefined, head: Head): BuiltLink[];
}

/** A write that waits, and how its caller is answered. */
export interface Waiting {
  write: Write;
  resolve: (committed: Committed) => void;
  reject: (error: unknown) => void;
}

/** Whether a write is too large to share a batch. */
export const isBulk = ({ write }: Waiting): boolean => write.bytes > bulkBytes;

/** The writes of one app that wait: bulks, and small ones that share batches. */
export class WriteQueue {
  private small: Waiting[] = [];
  private readonly bulks: Waiting[] = [];
  private bytes = 0;
  /** Whether a small write was left because it is held. */
  isHolding = false;
  private tellAdded = () => {};

  get size(): number {
    return this.small.length + this.bulks.length;
  }

  /** Throws TOO_MANY_REQUESTS when too much waits already. */
  add(one: Waiting): void {
    if (this.size >= waitingWritesMax || this.bytes >= waitingBytesMax) {
      throw new ServiceError('RESOURCE_EXHAUSTED', 'TOO_MANY_REQUESTS', 'Too many writes of this app are waiting');
    }
    this.bytes += one.write.bytes;
    if (isBulk(one)) this.bulks.push(one);
    else this.small.push(one);
    this.tellAdded();
  }

  /** Resolves when the next write is added. */
  added(): Promise<void> {
    return new Promise((resolve) => (this.tellAdded = resolve));
  }

  get nextBulk(): Waiting | undefined {
    return this.bulks[0];
  }

  /** Takes the next bulk. */
  takeBulk(): Waiting {
    const bulk = this.bulks.shift()!;
    this.bytes -= bulk.write.bytes;
    return bulk;
  }

  /**
   * Takes the small writes of the next batch; none when none may be written now. A second use of an Idempotency-Key
   * waits for the batch after the first, and so does a write that is held.
   */
  takeSmall(isHeld: (write: Write) => boolean): Waiting[] {
    const batch: Waiting[] = [];
    const left: Waiting[] = [];
    const keys: IdempotencyKey[] = [];
    let bytes = 0;
    let closed = false;
    this.isHolding = false;
    for (const one of this.small) {
      const { bytes: size, idempotency } = one.write;
      const repeated = idempotency !== undefined && keys.some((key) => sameKey(key, idempotency));
      closed ||= batch.length >= batchWritesMax || (batch.length > 0 && bytes + size > batchBytesMax);
      const held = isHeld(one.write);
      this.isHolding ||= held;
      if (closed || repeated || held) {
        left.push(one);
        continue;
      }
      batch.push(one);
      bytes += size;
      if (idempotency) keys.push(idempotency);
    }
    this.small = left;
    this.bytes -= bytes;
    return batch;
  }
}
