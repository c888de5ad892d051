import { pipeline, type Step } from '@granary/shared/postgres/pipeline';
import type { Connection } from '@granary/shared/postgres/pool';
import { trusted } from '@granary/shared/postgres/sql';
import { CommitUnknownError, pipelinedTransaction } from '@granary/shared/postgres/transaction';
import type { CollectionRef } from '../catalog/collection';
import { uniqueIndexes } from '../catalog/index-definition';
import { cachedCollections } from './batch-collections';
import type { BulkPreload } from './bulk-preload';
import type { CommitContext } from './commit-context';
import { companionSteps } from './companion-changes';
import { insertCommits } from '../chain/commit-log';
import { copyDocuments, copyFromDocuments, countNew } from './document-rows';
import { compareAndSetHead, headToLock, moveHead, toLockedHead, type LockedHead } from './head';
import { timeoutOf } from './locked-commit';
import { countBatch } from './metrics';
import { plan, rowsOf, type BatchPlan, type DocumentRow } from './plan';
import { keepAnswers } from './repeated-writes';
import { isDecidedUnderLock, type BatchResult, type PendingWrite } from './write';
import type { App } from '../catalog/app';
import { findAnswer } from '@granary/shared/idempotency/answers';

/** Ordinals left out before that of a preloaded bulk, for the commits that may come while it is copied. */
const reservedOrdinals = 2n ** 14n;
/**
 * How long a preload waits for a lock. Its holder may hold the head as well, or wait for what has been copied, and a
 * batch must not wait for that.
 */
const lockTimeoutMs = 200;
const usualLockTimeout = trusted('set local lock_timeout to default');

/** The head or the catalog has changed in a way that a preload cannot commit on. */
class PreloadConflictError extends Error {}

/**
 * An ordinal for a bulk that is to be preloaded, beyond `after`, that of the preload before it. Undefined when it
 * cannot be preloaded: other writes may have to wait for it because of its ids, but for nothing else.
 */
export function reserveOrdinal(
  { collections, heads }: CommitContext,
  app: App,
  { write }: PendingWrite,
  after: bigint,
): bigint | undefined {
  const [name, ...others] = write.collections;
  const collection = name === undefined ? undefined : collections.peek(app.number, name);
  const head = heads.latest(app.number);
  if (others.length > 0 || write.reads || write.isHeld) return undefined;
  if (!collection || !head || hasUniqueIndex(collection)) return undefined;
  const ids = write.ids();
  if (!ids || ids.count < copyFromDocuments || ids.set.size < ids.count) return undefined;
  return (head.ordinal > after ? head.ordinal : after) + reservedOrdinals;
}

const hasUniqueIndex = ({ indexes }: CollectionRef): boolean => uniqueIndexes(indexes).length > 0;

/**
 * The transaction of a preload: COPY without the lock of the head, then, in its turn, head, counters and commit in one
 * round trip. It commits if the head is still below the reserved ordinal and the catalog is the same; else undefined,
 * and nothing was written. Throws CommitUnknownError.
 */
export async function preloadTransaction(
  context: CommitContext,
  app: App,
  preload: BulkPreload,
): Promise<BatchResult | undefined> {
  const target = planRows(context, app, preload);
  if (!target) return undefined;
  const { collection, rows } = target;
  const release = await context.throttle.acquire();
  const startedAtMs = performance.now();
  const batch = [preload.bulk];
  try {
    if (!preload.beginCopying()) return undefined;
    const derived = context.afterPlan.statementsFor(collection);
    const derive = () => derived.besideCopy(context.pool, rows);
    const beside = context.throttle.isThrottling ? undefined : derive();
    // Awaited after the COPY, which may fail first.
    beside?.catch(() => {});
    const copy = await copyDocuments(collection, rows, context.now());
    const finish = async (tx: Connection) => {
      const changes = derived.isEmpty ? [] : [...(await (beside ?? derive())), ...(await derived.beforeTurn(tx, rows))];
      release();
      preload.hasCopied();
      await preload.turn;
      return finishPreload(context, app, { tx, preload, collection, rows, changes });
    };
    const planned = await pipelinedTransaction(context.pool, [copy], finish, { ...timeoutOf(batch), lockTimeoutMs });
    context.heads.committed(app.number, planned.to);
    context.newDocuments.written(new Map([[collection, rows]]), new Map());
    countBatch('preloaded', batch, startedAtMs);
    return { outcomes: planned.outcomes, changed: [collection.number] };
  } catch (error) {
    if (error instanceof CommitUnknownError) throw error;
    // Whatever it was: written under the lock, the bulk does not get it again or is answered with it.
    return undefined;
  } finally {
    release();
  }
}

interface PreloadRows {
  collection: CollectionRef;
  rows: readonly DocumentRow[];
}

/** The rows of a bulk at its reserved ordinal; they depend on that and the catalog, not on the head. */
function planRows(context: CommitContext, app: App, preload: BulkPreload): PreloadRows | undefined {
  const head = context.heads.latest(app.number);
  const planned = head && planAtOrdinal(context, app, preload, head);
  const [target, ...others] = planned ? rowsOf(planned) : [];
  return target && others.length === 0 ? { collection: target[0], rows: target[1] } : undefined;
}

/** The plan of a bulk on a head, at its reserved ordinal; undefined when it is refused or its collection not cached. */
function planAtOrdinal(
  context: CommitContext,
  app: App,
  { bulk, ordinal }: BulkPreload,
  head: LockedHead,
): BatchPlan | undefined {
  const collections = cachedCollections(context.collections, app, head.catalogRevision, [bulk]);
  const planned = collections && plan({ ...head, ordinal: ordinal - 1n }, [bulk], collections);
  return planned?.refused.length === 0 ? planned : undefined;
}

/** The last statements of a preload, to be sent with COMMIT. Throws PreloadConflictError. */
async function finishPreload(
  context: CommitContext,
  app: App,
  {
    tx,
    preload,
    collection,
    rows,
    changes,
  }: PreloadRows & { tx: Connection; preload: BulkPreload; changes: readonly Step[] },
) {
  const { bulk, ordinal } = preload;
  const expected = isDecidedUnderLock(bulk.write) ? undefined : context.heads.expected(app.number);
  const head = expected ?? (await lockAndReadHead(context, tx, app, bulk));
  const planned = head.ordinal < ordinal ? planAtOrdinal(context, app, preload, head) : undefined;
  if (!planned || head.catalogRevision !== collection.revision) throw new PreloadConflictError();
  const time = context.now();
  const last = [
    expected ? compareAndSetHead(app.number, expected, planned.to) : moveHead(app.number, planned.to),
    usualLockTimeout,
    countNew(collection, rows, time),
    ...changes,
    insertCommits(app.number, planned.commits, time),
    ...keepAnswers([bulk], planned.outcomes),
    ...companionSteps([bulk], planned.outcomes),
  ];
  return { result: planned, last };
}

/**
 * Locks and reads the head. Throws PreloadConflictError when the Idempotency-Key of the bulk was used before, or its
 * companion change cannot be made any more.
 */
async function lockAndReadHead(
  context: CommitContext,
  tx: Connection,
  app: App,
  { write }: PendingWrite,
): Promise<LockedHead> {
  const answers = await pipeline(tx, [headToLock(app.number)]);
  const locked = toLockedHead(answers.at(-1)!);
  context.heads.observed(app.number, locked);
  const { idempotency, companion } = write;
  if (idempotency && (await findAnswer(tx, idempotency)) !== undefined) throw new PreloadConflictError();
  if ((await companion?.refusal(tx)) !== undefined) throw new PreloadConflictError();
  return locked;
}
