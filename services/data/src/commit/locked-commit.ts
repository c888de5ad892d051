import { isGone } from '@granary/shared/postgres/errors';
import type { Step, StepAnswer } from '@granary/shared/postgres/pipeline';
import type { Connection } from '@granary/shared/postgres/pool';
import { pipelinedTransaction } from '@granary/shared/postgres/transaction';
import type { CollectionRef } from '../catalog/collection';
import { createMissing, lockedCollections } from './batch-collections';
import type { CommitContext } from './commit-context';
import { companionSteps, findRefusedCompanions } from './companion-changes';
import { insertCommits } from '../chain/commit-log';
import { nothingDerived } from './after-plan';
import { mayBeOfDerived } from './derived-failure';
import { writeDocuments } from './document-rows';
import { findClosedWrites } from './held-writes';
import { headToLock, moveHead, toLockedHead, type LockedHead } from './head';
import { countBatch } from './metrics';
import { prefetchDocuments, readPresentDocuments, type Prefetch, type ReadDocuments } from './present-documents';
import { plan, rowsOf, type BatchPlan, type RowsByCollection } from './plan';
import { findCommittedTickets, findKeptAnswers, keepAnswers } from './repeated-writes';
import { UniqueViolationError, uniqueViolation } from './unique-violation';
import { setVersions, versionedCollections } from './written-versions';
import { isPresentIn, type BatchResult, type PendingWrite, type PresentDocuments } from './write';
import type { App } from '../catalog/app';

/** A statement of a large bulk may take longer: 10,000 documents under 64 indexes take seconds. */
const largeBulkTimeoutMs = 30_000;

export const timeoutOf = (batch: readonly PendingWrite[]): { statementTimeoutMs?: number } =>
  batch.some(({ write }) => write.sizeClass === 'largeBulk') ? { statementTimeoutMs: largeBulkTimeoutMs } : {};

/** The result of a transaction, with its last statements, which are sent together with COMMIT. */
interface Written {
  result: { batch: BatchResult; head: LockedHead | undefined };
  last: Step[];
  committed?: (answers: readonly StepAnswer[]) => void;
}

/** One attempt to commit a batch in two round trips: the first locks and reads the head, the second writes. */
export class LockedCommit {
  /**
   * Whether the tickets of the batch have been read under the lock, so that an earlier attempt is known to have failed.
   */
  hasReadTickets = false;
  private rows: RowsByCollection = new Map();
  /** An attempt with what is derived from the documents has failed, perhaps for that. */
  private isWithoutDerived = false;
  /** Whether documents may be expected to be new: not after an attempt in which one was not. */
  private mayExpectNew = true;

  /** `looksUpTickets`: some of the writes may have committed in an earlier attempt. */
  constructor(
    private readonly context: CommitContext,
    private readonly app: App,
    private readonly batch: readonly PendingWrite[],
    private readonly looksUpTickets = false,
  ) {}

  /**
   * Gives the outcome of every write, or throws and nothing was written. Throws UniqueViolationError,
   * CommitUnknownError.
   */
  async run(): Promise<BatchResult> {
    const { app, batch, context } = this;
    let prefetched = prefetchDocuments(context, app, batch);
    for (;;) {
      try {
        return await this.attempt(prefetched);
      } catch (error) {
        if (!this.isAvoidable(error, prefetched !== undefined)) throw error;
        prefetched = undefined;
      }
    }
  }

  /** Whether the next attempt avoids the error of the last one, which wrote nothing: each can be avoided once. */
  private isAvoidable(error: unknown, hasPrefetched: boolean): boolean {
    const { context } = this;
    if (error instanceof UniqueViolationError) return false;
    if (this.mayExpectNew && context.newDocuments.isRefutedBy(error)) {
      this.mayExpectNew = false;
      return true;
    }
    if (!this.isWithoutDerived && mayBeOfDerived(context, error, this.rows.keys())) {
      this.isWithoutDerived = true;
      return true;
    }
    // A table that was prefetched from is gone.
    return hasPrefetched && isGone(error);
  }

  private async attempt(prefetched: Prefetch | undefined): Promise<BatchResult> {
    const { app, batch, context } = this;
    const startedAtMs = performance.now();
    const work = (tx: Connection, head: StepAnswer, ...documents: StepAnswer[]) =>
      this.write(tx, toLockedHead(head), prefetched?.answered(documents));
    const first = [headToLock(app.number), ...(prefetched?.steps ?? [])];
    try {
      const written = await pipelinedTransaction(context.pool, first, work, timeoutOf(batch));
      context.heads.committed(app.number, written.head);
      countBatch('locked', batch, startedAtMs);
      return written.batch;
    } catch (error) {
      throw uniqueViolation(error, this.rows) ?? error;
    }
  }

  private async write(tx: Connection, locked: LockedHead, prefetched: ReadDocuments | undefined): Promise<Written> {
    const { app, batch, context } = this;
    context.heads.observed(app.number, locked);
    // Read under the lock, so that times follow heights as far as clocks agree.
    const time = context.now();
    const outcomes = await this.findRepeated(tx);
    const open = batch.filter((pending) => !outcomes.has(pending));
    const { planned, hasCreated, documents } = await this.plan(tx, locked, open, { at: time, prefetched });
    for (const [pending, outcome] of planned.outcomes) outcomes.set(pending, outcome);
    // A write that committed before may be refused by what has changed since.
    if (planned.refused.length > 0 && !this.looksUpTickets) {
      for (const [pending, committed] of await findCommittedTickets(tx, app, planned.refused)) {
        outcomes.set(pending, committed);
      }
    }
    this.rows = rowsOf(planned);
    const hasAbandoned = await this.abandonDerived(tx);
    // These raise the revision of the catalog, and a rollback lowers it again.
    const head = hasCreated || hasAbandoned ? undefined : planned.to;
    if (planned.commits.length === 0) return { result: { batch: { outcomes, changed: [] }, head }, last: [] };
    // First of all: the statements that follow read the height of the commit.
    const last: Step[] = [moveHead(app.number, planned.to)];
    const versioned = versionedCollections(planned);
    const upserts = new Map<CollectionRef, number>();
    const isEachRead = open.every(({ write }) => write.reads);
    for (const [collection, rows] of this.rows) {
      const returnsVersions = versioned.has(collection.name);
      const isPresent = isPresentIn(documents, collection);
      const derived = this.isWithoutDerived ? nothingDerived : context.afterPlan.statementsFor(collection);
      const expectsNew = this.mayExpectNew && context.newDocuments.isExpected(collection, rows, isPresent);
      const options = { derived, expectsNew, returnsVersions, isKnown: isEachRead ? isPresent : undefined };
      upserts.set(collection, last.length);
      last.push(...(await writeDocuments(tx, collection, rows, time, options)));
    }
    const committed = (answers: readonly StepAnswer[]) => {
      const byCollection = new Map([...upserts].map(([collection, step]) => [collection, answers[step]!]));
      context.newDocuments.written(this.rows, byCollection);
      setVersions(planned, this.rows, byCollection);
    };
    last.push(insertCommits(app.number, planned.commits, time));
    last.push(...keepAnswers(open, outcomes), ...companionSteps(open, outcomes));
    const changed = [...this.rows.keys()].map(({ number }) => number);
    return { result: { batch: { outcomes, changed }, head }, last, committed };
  }

  /** Whether this attempt leaves out what is derived from the documents, which does not follow them any more then. */
  private async abandonDerived(tx: Connection): Promise<boolean> {
    const { app, context } = this;
    const collections = this.isWithoutDerived ? context.afterPlan.derivedFrom(this.rows.keys()) : [];
    if (collections.length === 0) return false;
    await context.afterPlan.abandon(tx, app, collections);
    return true;
  }

  /** The writes that have an outcome already. */
  private async findRepeated(tx: Connection): Promise<BatchResult['outcomes']> {
    const outcomes: BatchResult['outcomes'] = new Map();
    const open = () => this.batch.filter((pending) => !outcomes.has(pending));
    const add = (found: BatchResult['outcomes']) => {
      for (const [pending, outcome] of found) outcomes.set(pending, outcome);
    };
    if (this.looksUpTickets) {
      add(await findCommittedTickets(tx, this.app, this.batch));
      this.hasReadTickets = true;
    }
    add(await findKeptAnswers(tx, this.app, open()));
    add(await findClosedWrites(tx, open()));
    add(await findRefusedCompanions(tx, open()));
    return outcomes;
  }

  /** Plans on the locked head; again once the collections exist that the accepted writes need. */
  private async plan(
    tx: Connection,
    head: LockedHead,
    open: readonly PendingWrite[],
    { at: time, prefetched }: { at: Date; prefetched: ReadDocuments | undefined },
  ): Promise<{ planned: BatchPlan; hasCreated: boolean; documents: PresentDocuments }> {
    const { app, context } = this;
    const collections = await lockedCollections(tx, context.collections, app, head.catalogRevision, open);
    const documents = await readPresentDocuments(tx, collections.known, open, prefetched);
    const planned = plan(head, open, collections, documents);
    if (planned.missing.size === 0) return { planned, hasCreated: false, documents };
    const settings = { readAccess: context.defaultRead, at: time };
    const completed = await createMissing(tx, app, collections, planned.missing, settings);
    const replanned = plan(head, open, completed, documents);
    return { planned: replanned, hasCreated: completed.created.size > 0, documents };
  }
}
