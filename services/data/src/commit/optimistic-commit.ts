import { singleRoundTripTransaction } from '@granary/shared/postgres/transaction';
import { cachedCollections } from './batch-collections';
import type { CommitContext } from './commit-context';
import { insertCommits } from './commit-log';
import { fitsUpsert, upsertDocuments } from './document-rows';
import { compareAndSetHead, isHeadConflict } from './head';
import { countBatch } from './metrics';
import { plan, rowsOf, type BatchPlan } from './plan';
import { uniqueViolation } from './unique-violation';
import { setVersions, versionedCollections } from './written-versions';
import type { BatchResult, PendingWrite } from './write';
import type { App } from '../catalog/app';

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
  // Many documents need a look-up of known ids first, a key one of what it was used for.
  if (!fitsUpsert(batch) || batch.some(({ write }) => write.idempotency || write.reads || write.sizeClass !== 'small'))
    return undefined;
  const startedAtMs = performance.now();
  const planned = planOnCachedHead(context, app, batch);
  if (!planned) return undefined;
  const rows = rowsOf(planned);
  if (![...rows.values()].every(fitsUpsert)) return undefined;
  // No one moves the head between the commit before this one and this one, so times follow heights.
  const at = context.now();
  const versioned = versionedCollections(planned);
  const upserts = [...rows].map(([collection, documents]) =>
    upsertDocuments(collection, documents, at, {
      derived: context.afterPlan.of(collection),
      returnsVersions: versioned.has(collection.name),
    }),
  );
  try {
    const [, ...answers] = await singleRoundTripTransaction(context.pool, [
      compareAndSetHead(app.number, planned.from, planned.to),
      ...upserts,
      insertCommits(app.number, planned.commits, at),
    ]);
    if (versioned.size > 0)
      setVersions(planned, rows, new Map([...rows.keys()].map((each, at) => [each, answers[at]!])));
  } catch (error) {
    if (isHeadConflict(error)) return undefined;
    throw uniqueViolation(error, rows) ?? error;
  }
  context.heads.committed(app.number, planned.to);
  countBatch('optimistic', batch, startedAtMs);
  return { outcomes: planned.outcomes, changed: [...rows.keys()].map(({ number }) => number) };
}

/** Undefined when the head or a collection is not cached, or a write is refused: it may have committed before. */
function planOnCachedHead(context: CommitContext, app: App, batch: readonly PendingWrite[]): BatchPlan | undefined {
  const head = context.heads.expected(app.number);
  const collections = head && cachedCollections(context.collections, app, head.catalogRevision, batch);
  const planned = collections && plan(head, batch, collections);
  return planned?.refused.length === 0 ? planned : undefined;
}
