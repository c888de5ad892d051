import { setTimeout as delay } from 'node:timers/promises';
import { ServiceError } from '@granary/shared/errors';
import type { Commit } from '@granary/shared/gen/granary/data/v1/Commit';
import { newCall } from '@granary/shared/rpc/types';
import {
  findDeleting,
  findPending,
  discardPending,
  markDeleted,
  markStored,
  storedUpload,
  withdrawDeletion,
  type Blob,
} from '../records/blobs';
import type { BlobsContext } from '../records/context';

const batchSize = 100;
const roundEveryMs = 2_000;
/** Short, because a stop waits for it. */
const askTimeoutMs = 3_000;

/** The commit of a ticket; undefined when `data` has none. */
async function findCommit(context: BlobsContext, ticketId: string): Promise<Commit | undefined> {
  try {
    return await context.data.getCommit({ ticketId }, newCall('blobs:reconciliation', askTimeoutMs));
  } catch (error) {
    if (error instanceof ServiceError && error.code === 'NOT_FOUND') return undefined;
    throw error;
  }
}

/**
 * Decides an upload whose outcome is unknown: if `data` has committed its ticket it is a blob; if not, and it no longer
 * can, it is discarded. Returns whether it was committed; a later deletion may have ended it since.
 */
export async function reconcileUpload(context: BlobsContext, blob: Blob): Promise<boolean> {
  const isCommitting = context.committing.has(blob.rowId);
  const commit = await findCommit(context, blob.ticket);
  if (commit) {
    await markStored(context.pool, [storedUpload(blob.rowId, commit)]);
    context.appended.notify();
    return true;
  }
  if (isCommitting || context.clock.now().getTime() - blob.createdAt.getTime() < context.pendingGraceMs) return false;
  await discardPending(context.pool, blob.rowId);
  context.log.info({ blobId: blob.blobId, app: blob.appId }, 'discarded an upload that was never committed');
  return false;
}

/** Finishes a recorded deletion if `data` has committed it. Returns whether it has. */
export async function finishDeletion(context: BlobsContext, blob: Blob): Promise<boolean> {
  const commit = await findCommit(context, blob.deleteTicket!);
  if (!commit) return false;
  await markDeleted(context.pool, blob, BigInt(commit.height));
  context.appended.notify();
  return true;
}

/** Finishes a deletion whose outcome is unknown, or withdraws it. */
async function reconcileDeletion(context: BlobsContext, blob: Blob): Promise<void> {
  if (!(await finishDeletion(context, blob))) await withdrawDeletion(context.pool, blob.rowId, blob.deleteTicket!);
}

async function round(context: BlobsContext, isStopping: () => boolean): Promise<void> {
  for (const blob of await findPending(context.pool, batchSize)) {
    if (isStopping()) return;
    if (!context.committing.has(blob.rowId)) await reconcileUpload(context, blob);
  }
  for (const blob of await findDeleting(context.pool, context.pendingGraceMs, batchSize)) {
    if (isStopping()) return;
    await reconcileDeletion(context, blob);
  }
  await context.removeBytes(isStopping);
}

/**
 * Reconciles uploads and deletions of unknown outcome with `data`, now and every few seconds. All replicas may do so at
 * once: each step changes a row only from the state in which it was decided.
 */
export function startReconciliation(context: BlobsContext): { stop(): Promise<void> } {
  const stopped = new AbortController();
  const run = async () => {
    while (!stopped.signal.aborted) {
      await round(context, () => stopped.signal.aborted).catch((error: unknown) => {
        context.log.warn({ err: error }, 'reconciliation failed and will be retried');
      });
      // An abort only ends the pause.
      await delay(roundEveryMs, undefined, { signal: stopped.signal }).catch(() => {});
    }
  };
  const running = run();
  return {
    stop: async () => {
      stopped.abort();
      await running;
    },
  };
}
