import { BulkPreload } from './bulk-preload';
import type { CommitContext } from './commit-context';
import { LockedCommit } from './locked-commit';
import { commitOptimistically } from './optimistic-commit';
import { preloadTransaction, reserveOrdinal } from './preload-transaction';
import { ReadAhead } from './read-ahead';
import { Recovery } from './recovery';
import { conflicts, settleBatch, type BatchResult, type Committed, type PendingWrite, type Write } from './write';
import { WriteQueue } from './write-queue';
import type { App } from '../catalog/app';

/** Bulks of one app that are preloaded at a time. */
const preloadsMax = 2;
/** After a preload that came to nothing, so many bulks of the app are not preloaded. */
const preloadBackoffBulks = 16;

/**
 * Writes of an app that may wait when the documents of a new one are read ahead, which is compared with all of them.
 */
const readAheadQueueMax = 64;

/** Commits the writes of one app, one batch at a time. */
export class AppCommitter {
  private readonly queue = new WriteQueue();
  private readonly recovery: Recovery;
  private readonly readAhead: ReadAhead;
  /** The batch that is being committed. */
  private batch: readonly PendingWrite[] = [];
  /** The preloads in the order of the queue; the first may be committing. */
  private readonly preloads: BulkPreload[] = [];
  /** Bulks that are not to be preloaded any more. */
  private preloadBackoff = 0;

  constructor(
    private readonly context: CommitContext,
    private readonly app: App,
  ) {
    this.recovery = new Recovery(context, app);
    this.readAhead = new ReadAhead(context, app, (pending) => this.enqueue(pending));
  }

  /** Whether nothing waits. */
  get isIdle(): boolean {
    return this.queue.size + this.preloads.length + this.readAhead.size === 0;
  }

  /** Resolves when the write has committed. Rejects with the error that refused it, TOO_MANY_REQUESTS among them. */
  submit(write: Write): Promise<Committed> {
    return new Promise((resolve, reject) => {
      const pending = { write, resolve, reject };
      this.readAhead.handOnBefore(write);
      const isRead = this.queue.size <= readAheadQueueMax && this.readAhead.accept(pending, () => this.unsettled());
      if (!isRead) this.enqueue(pending);
    });
  }

  private enqueue(pending: PendingWrite): void {
    const { write } = pending;
    this.queue.add(pending);
    this.context.memory.take(write.bytes);
    if (write.sizeClass === 'small') this.context.throttle.noteSmallWrite();
    this.startPreloads();
  }

  /** Writes that wait for their commit, or are being committed. */
  private unsettled(): PendingWrite[] {
    return [...this.queue.waiting(), ...this.batch, ...this.preloads.map(({ bulk }) => bulk)];
  }

  /**
   * Commits until the queue is empty. Alternates small batches with bulks: a small write waits for one bulk at most,
   * and only for its COMMIT if that bulk was preloaded.
   */
  async run(): Promise<void> {
    // Writes of the same turn of the event loop make the first batch.
    await new Promise((resolve) => setImmediate(resolve));
    let wasBulk = false;
    while (!this.isIdle) {
      this.startPreloads();
      const [preload] = this.preloads;
      const isBulkDue = preload ? preload.isSettled : this.queue.nextBulk !== undefined;
      const small: PendingWrite[] = isBulkDue && !wasBulk ? [] : this.takeSmall();
      wasBulk = small.length === 0 && isBulkDue;
      if (small.length > 0) await this.commitBatch(small);
      else if (preload && isBulkDue) await this.commitPreload(preload);
      else if (isBulkDue) await this.commitBulk();
      else await Promise.race([this.queue.added(), ...(preload ? [preload.settled] : [])]);
    }
  }

  private takeSmall(): PendingWrite[] {
    return this.queue.takeSmall((write) => this.preloads.some((preload) => preload.blocks(write)));
  }

  /** Preloads the bulks that are next, as long as a slot stays free for other apps. */
  private startPreloads(): void {
    // A blocked write must not wait for bulks that came after it.
    while (this.preloadBackoff === 0 && this.preloads.length < preloadsMax && !this.queue.hasBlocked) {
      const next = this.queue.nextBulk;
      if (!next) return;
      const { held, limit } = this.context.slots.counts();
      if (limit - held < 2) return;
      const ordinal = reserveOrdinal(this.context, this.app, next, this.preloads.at(-1)?.ordinal ?? 0n);
      if (ordinal === undefined || this.conflictsWithEarlier(next.write)) return;
      this.startPreload(this.queue.takeBulk(), ordinal);
    }
  }

  private conflictsWithEarlier(write: Write): boolean {
    return (
      this.batch.some((pending) => conflicts(pending.write, write)) ||
      this.preloads.some((preload) => preload.blocks(write))
    );
  }

  private startPreload(bulk: PendingWrite, ordinal: bigint): void {
    const { context, app } = this;
    context.slots.tryAcquire();
    const preload = new BulkPreload(bulk, ordinal, (self) => preloadTransaction(context, app, self));
    void preload.ended.then(() => context.slots.release());
    this.preloads.push(preload);
  }

  private commitBulk(): Promise<void> {
    this.preloadBackoff = Math.max(0, this.preloadBackoff - 1);
    return this.commitBatch([this.queue.takeBulk()]);
  }

  private async commitBatch(batch: readonly PendingWrite[]): Promise<void> {
    this.batch = batch;
    this.context.memory.release(batch);
    await this.inSlot(() => this.commit(batch, () => commitOptimistically(this.context, this.app, batch)));
    this.batch = [];
  }

  /** Commits the first preload. If it comes to nothing, the others must be out of the way of its bulk. */
  private async commitPreload(preload: BulkPreload): Promise<void> {
    const batch = [preload.bulk];
    this.context.memory.release(batch);
    try {
      const result = await preload.commit();
      if (result) {
        this.answer(batch, result);
      } else {
        this.preloadBackoff = preloadBackoffBulks;
        await Promise.all(this.preloads.slice(1).map((other) => other.abandon()));
        await this.inSlot(() => this.commit(batch));
      }
    } catch (error) {
      await this.inSlot(() => this.recovery.settle(batch, error));
    }
    this.preloads.shift();
  }

  private async inSlot(work: () => Promise<void>): Promise<void> {
    const { slots } = this.context;
    await slots.acquire();
    try {
      await work();
    } finally {
      slots.release();
    }
  }

  /** Settles every write of a batch; never throws. `fastest` gives undefined where it wrote nothing. */
  private async commit(
    batch: readonly PendingWrite[],
    fastest?: () => Promise<BatchResult | undefined>,
  ): Promise<void> {
    let result: BatchResult;
    try {
      result = (await fastest?.()) ?? (await new LockedCommit(this.context, this.app, batch).run());
    } catch (error) {
      return this.recovery.settle(batch, error);
    }
    this.answer(batch, result);
  }

  /** While others wait, the answers follow once those are on their way: Postgres need not wait for answers. */
  private answer(batch: readonly PendingWrite[], result: BatchResult): void {
    this.context.afterCommit(this.app, result.changed);
    if (this.queue.size > 0) setImmediate(() => settleBatch(batch, result));
    else settleBatch(batch, result);
  }
}
