import { Semaphore } from '@granary/shared/concurrency/semaphore';
import type { StorageMonitor } from '@granary/shared/health/storage-monitor';
import type { CatalogCache } from '../catalog/cache';
import { AppCommitter } from './app-committer';
import type { CommitContext } from './commit-context';
import { HeadCache } from './head-cache';
import { NewDocuments } from './new-documents';
import type { Committed, Write } from './write';
import { WriteMemory } from './write-memory';
import type { App } from '../catalog/app';

export interface CommitterSettings extends Omit<
  CommitContext,
  'slots' | 'reads' | 'memory' | 'heads' | 'newDocuments'
> {
  /** Transactions that run at a time, of all apps. */
  concurrency: number;
  memory?: WriteMemory;
}

/**
 * Group commit. Every write of an app is a link of its hash chain, so commits of one app are serial; writes that wait
 * while a transaction runs go together into the next one, which costs one flush of the log for all of them.
 *
 * The pipeline of a write, top to bottom:
 *
 * 1. `WriteMemory` budgets its bytes, or it is refused (503; 429 when the queue of its app is full).
 * 2. It joins the `WriteQueue` of its app. Where it depends on present documents, `ReadAhead` reads them first.
 * 3. `AppCommitter` takes batches from the queue, alternating small ones with bulks. Meanwhile `BulkPreload` copies the
 *    bulks that are next, slowed down by `BulkThrottle` while small writes arrive.
 * 4. The batch acquires one of the slots that all apps share.
 * 5. `plan` computes its links, rows and outcomes from the head in `HeadCache`: a pure function.
 * 6. `commitOptimistically` sends everything in one round trip that compares and sets the head. Where that is not
 *    possible, or the head is another, `LockedCommit` locks the head and plans again on what it reads.
 * 7. Each write of the batch is answered. After a failure `Recovery` retries, commits one by one, or finds out what an
 *    unanswered COMMIT has done.
 *
 * Invariants:
 *
 * - The heights of an app have no gaps, and each link contains the hash of the one before it.
 * - One transaction at a time moves a head, and every statement that reads or writes what others could change runs
 *   under its lock. Only the COPY of a preload runs before: its rows are new ids at an ordinal that nobody else has.
 * - A ticket commits at most once: it is unique in the log, and an unknown outcome is resolved before it is answered.
 * - A refused write leaves no trace, and does not affect the other writes of its batch.
 * - A write is answered only after the COMMIT that contains it.
 */
export class Committer {
  private readonly apps = new Map<bigint, AppCommitter>();
  private readonly running = new Set<Promise<void>>();
  private readonly context: CommitContext;

  constructor(
    { concurrency, ...settings }: CommitterSettings,
    private readonly storage?: Pick<StorageMonitor, 'refuseWhenFull'>,
  ) {
    this.context = {
      ...settings,
      slots: new Semaphore(concurrency),
      reads: new Semaphore(Math.ceil(concurrency / 2)),
      memory: settings.memory ?? new WriteMemory(),
      heads: new HeadCache(),
      newDocuments: new NewDocuments(),
    };
  }

  get collections(): CatalogCache {
    return this.context.collections;
  }

  /** Commits a write. Throws the ServiceError that refused it, UNAVAILABLE when it is unknown whether it committed. */
  submit(app: App, write: Write): Promise<Committed> {
    this.storage?.refuseWhenFull();
    this.context.memory.refuseWhenFull();
    const existing = this.apps.get(app.number);
    if (existing) return existing.submit(write);
    const created = new AppCommitter(this.context, app);
    this.apps.set(app.number, created);
    const committed = created.submit(write);
    const run = this.run(app, created).finally(() => this.running.delete(run));
    this.running.add(run);
    return committed;
  }

  /**
   * The committer of an app is dropped in the same turn in which it is found idle, so no write can join it after that.
   */
  private async run(app: App, committer: AppCommitter): Promise<void> {
    while (!committer.isIdle) await committer.run();
    this.apps.delete(app.number);
  }

  /** Parses a body within the memory budget of writes. Throws UNAVAILABLE when that is used up. */
  parseWithin<T>(bytes: number, parse: () => Promise<T>): Promise<T> {
    return this.context.memory.during(bytes, parse);
  }

  /** Resolves when every submitted write is answered. */
  async stop(): Promise<void> {
    await Promise.all(this.running);
  }
}
