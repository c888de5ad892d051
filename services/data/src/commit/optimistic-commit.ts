import { sql } from '@granary/shared/postgres/sql';
import { singleRoundTripTransaction } from '@granary/shared/postgres/transaction';
import { cachedCollections } from './batch-collections';
import type { CommitContext } from './commit-context';
import { insertCommits } from '../chain/commit-log';
import { fitsUpsert, upsertDocuments } from './document-rows';
import { compareAndSetHead, isHeadConflict } from './head';
import { mayBeOfDerived } from './derived-failure';
import { countBatch } from './metrics';
import { assertAssumed, assumedDocuments } from './present-documents';
import { plan, rowsOf, type BatchPlan, type DocumentRow } from './plan';
import { uniqueViolation } from './unique-violation';
import { setVersions, versionedCollections } from './written-versions';
import {
  isDecidedUnderLock,
  isPresentIn,
  type BatchResult,
  type PendingWrite,
  type PresentDocuments,
  type Write,
} from './write';
import type { App } from '../catalog/app';
import type { CollectionRef } from '../catalog/collection';

/**
 * Commits a batch in one round trip: planned on the cached head, which Postgres compares under its lock before it runs
 * the statements behind. Undefined when that is not possible or the head is another; nothing was written then. Throws
 * UniqueViolationError, CommitUnknownError.
 */
export async function commitOptimistically(
  context: CommitContext,
  app: App,
  batch: readonly PendingWrite[],
): Promise<BatchResult | undefined> {
  if (!fitsUpsert(batch) || !batch.every(({ write }) => mayBePlanned(write))) return undefined;
  const startedAtMs = performance.now();
  const documents = assumedDocuments(batch);
  const planned = planOnCachedHead(context, app, batch, documents);
  if (!planned) return undefined;
  const rows = rowsOf(planned);
  if (![...rows].every(([collection, written]) => fitsUpsert(unknownRows(collection, written, documents)))) {
    return undefined;
  }
  // No one moves the head between the commit before this one and this one, so times follow heights.
  const time = context.now();
  const versioned = versionedCollections(planned);
  const upserts = [...rows].map(([collection, written]) =>
    upsertDocuments(collection, written, time, {
      derived: context.afterPlan.statementsFor(collection),
      expectsNew: context.newDocuments.isExpected(collection, written, isPresentIn(documents, collection)),
      returnsVersions: versioned.has(collection.name),
    }),
  );
  const first = [
    ...(context.afterPlan.derivedFrom(rows.keys()).length > 0 ? [genericPlans] : []),
    compareAndSetHead(app.number, planned.from, planned.to),
    ...assertAssumed(rows, batch, documents),
  ];
  try {
    const steps = [...first, ...upserts, insertCommits(app.number, planned.commits, time)];
    const answers = (await singleRoundTripTransaction(context.pool, steps)).slice(first.length);
    const byCollection = new Map([...rows.keys()].map((each, index) => [each, answers[index]!]));
    context.newDocuments.written(rows, byCollection);
    setVersions(planned, rows, byCollection);
  } catch (error) {
    if (isHeadConflict(error)) return undefined;
    if (context.newDocuments.isRefutedBy(error)) return undefined;
    const violation = uniqueViolation(error, rows);
    if (!violation && mayBeOfDerived(context, error, rows.keys())) return undefined;
    throw violation ?? error;
  }
  context.heads.committed(app.number, planned.to);
  countBatch('optimistic', batch, startedAtMs);
  return { outcomes: planned.outcomes, changed: [...rows.keys()].map(({ number }) => number) };
}

/**
 * Planning a statement with live views takes longer than running it. Postgres would still plan it each time, because of
 * its estimates for an unknown number of documents.
 */
const genericPlans = sql`set local plan_cache_mode = force_generic_plan`;

/**
 * Whether a write may be planned before the lock. Not one of which an outcome may be found under the lock. One that
 * depends on documents needs what they were; a bulk, which ids are known, and they come from the same read.
 */
const mayBePlanned = (write: Write): boolean => {
  const { reads, assumed, sizeClass } = write;
  if (isDecidedUnderLock(write) || (reads && assumed === undefined)) return false;
  return sizeClass === 'small' || (!!assumed && sizeClass === 'bulk');
};

/** The rows of documents that may be new; all of them where they are few. */
const unknownRows = (
  collection: CollectionRef,
  rows: readonly DocumentRow[],
  documents: PresentDocuments,
): readonly DocumentRow[] => {
  const isPresent = isPresentIn(documents, collection);
  return fitsUpsert(rows) ? rows : rows.filter(({ document: { id } }) => !isPresent(id));
};

/** Undefined when the head or a collection is not cached, or a write is refused: it may have committed before. */
function planOnCachedHead(
  context: CommitContext,
  app: App,
  batch: readonly PendingWrite[],
  documents: PresentDocuments,
): BatchPlan | undefined {
  const head = context.heads.expected(app.number);
  const collections = head && cachedCollections(context.collections, app, head.catalogRevision, batch);
  const planned = collections && plan(head, batch, collections, documents);
  return planned?.refused.length === 0 && !batch.some(({ write }) => write.isPartial) ? planned : undefined;
}
