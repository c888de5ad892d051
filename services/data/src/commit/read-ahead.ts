import { runSliced, runToCompletion } from '@granary/shared/concurrency/time-slicing';
import type { App } from '../catalog/app';
import { cachedCollections } from './batch-collections';
import type { CommitContext } from './commit-context';
import { readUnlocked } from './present-documents';
import { isDecidedUnderLock, type PendingWrite, type PlanState, type Write } from './write';

/**
 * Reads the documents that writes of an app depend on while the batch before theirs is being committed, so that their
 * batch is planned before its turn and committed in one round trip. Writes that arrive together, or during a read, are
 * read for together. It decides nothing: what a write assumes is asserted under the lock, and a write that has not been
 * read for, or assumes what has changed, is planned under the lock.
 */
export class ReadAhead {
  private waiting: PendingWrite[] = [];
  /** Writes that have been accepted and not handed on. */
  private readonly accepted = new Set<PendingWrite>();
  private isReading = false;

  /** `done` is called once for each accepted write, whether it assumes something then or not. */
  constructor(
    private readonly context: CommitContext,
    private readonly app: App,
    private readonly done: (pending: PendingWrite) => void,
  ) {}

  get size(): number {
    return this.accepted.size;
  }

  /** Hands on at once what a later write of the same document must not overtake. */
  handOnBefore(write: Write): void {
    for (const pending of this.accepted) {
      if (!mayChange(write, pending.write)) continue;
      this.accepted.delete(pending);
      this.done(pending);
    }
  }

  /** Whether the write was accepted. `unsettled`: the other writes of the app. */
  accept(pending: PendingWrite, unsettled: () => readonly PendingWrite[]): boolean {
    if (!this.isPromising(pending.write)) return false;
    const others = [...this.accepted, ...unsettled()];
    if (others.some((other) => mayChange(other.write, pending.write))) return false;
    this.accepted.add(pending);
    this.waiting.push(pending);
    if (!this.isReading) void this.run();
    return true;
  }

  /**
   * Whether a write may be committed in one round trip: not where another replica writes to the app. Its conditions may
   * depend on more than the document.
   */
  private isPromising(write: Write): boolean {
    const { reads, sizeClass } = write;
    if (!reads || !write.assume || isDecidedUnderLock(write) || sizeClass === 'largeBulk') return false;
    if (reads.some(({ condition }) => condition !== undefined)) return false;
    return this.context.heads.expected(this.app.number) !== undefined;
  }

  private async run(): Promise<void> {
    this.isReading = true;
    // Writes of the same turn of the event loop are read for together.
    await new Promise((resolve) => setImmediate(resolve));
    while (this.waiting.length > 0) {
      const batch = this.waiting;
      this.waiting = [];
      const state = await this.read(batch);
      for (const pending of batch) void this.assume(pending, state);
    }
    this.isReading = false;
  }

  /** Undefined where it could not be read: the commit meets the same trouble, and reports it. */
  private async read(batch: readonly PendingWrite[]): Promise<PlanState | undefined> {
    const { heads, collections, pool, reads } = this.context;
    const revision = heads.latest(this.app.number)?.catalogRevision;
    const cached = revision === undefined ? undefined : cachedCollections(collections, this.app, revision, batch);
    if (!cached) return undefined;
    await reads.acquire();
    try {
      return { collections: cached.known, documents: await readUnlocked(pool, cached.known, batch) };
    } catch {
      return undefined;
    } finally {
      reads.release();
    }
  }

  private async assume(pending: PendingWrite, state: PlanState | undefined): Promise<void> {
    // It may have been handed on.
    if (!this.accepted.has(pending)) return;
    const { write } = pending;
    const task = state && write.assume?.(state);
    try {
      if (task && write.sizeClass === 'small') runToCompletion(task);
      else if (task) await runSliced(task);
      if (this.accepted.delete(pending)) this.done(pending);
    } catch (error) {
      if (this.accepted.delete(pending)) pending.reject(error);
    }
  }
}

/** Whether a write changes, or may change, a document that the other reads. */
function mayChange(write: Write, { reads }: Write): boolean {
  const ids = write.ids();
  return reads!.some(({ collection, id }) => write.collections.includes(collection) && (!ids || ids.set.has(id)));
}
