import { setTimeout as delay } from 'node:timers/promises';
import { ServiceError } from '@granary/shared/errors';
import type { Commit } from '@granary/shared/gen/granary/data/v1/Commit';
import { newCall } from '@granary/shared/rpc/types';
import {
  findDeleting,
  findPending,
  forgetPending,
  markDeleted,
  markStored,
  storedUpload,
  withdrawDeletion,
  type Blob,
} from '../records/blobs';
import type { BlobsContext } from '../records/context';

const batchSize = 100;
const roundEveryMs = 2_000;
/** Short, for a stop waits for it. */
const askTimeoutMs = 3_000;

/** The commit of a ticket, undefined when data knows none. */
async function findCommit(context: BlobsContext, ticketId: string): Promise<Commit | undefined> {
  try {
    return await context.data.getCommit({ ticketId }, newCall('blobs:settling', askTimeoutMs));
  } catch (error) {
    if (error instanceof ServiceError && error.code === 'NOT_FOUND') return undefined;
    throw error;
  }
}

/**
 * Decides about an upload that was left between its bytes and its commit, by asking data: what data has committed is
 * a blob; what it has not, and cannot any more, is thrown away. Answers whether it is a blob.
 */
export async function settleUpload(context: BlobsContext, blob: Blob): Promise<boolean> {
  const isCommitting = context.committing.has(blob.blobId);
  const commit = await findCommit(context, blob.ticket);
  if (commit) {
    await markStored(context.pool, [storedUpload(blob.blobId, commit)]);
    context.appended.notify();
    return true;
  }
  if (isCommitting || context.clock.now().getTime() - blob.createdAt.getTime() < context.pendingGraceMs) return false;
  await forgetPending(context.pool, blob.blobId);
  context.log.info({ blobId: blob.blobId, app: blob.appId }, 'gave up an upload that was never committed');
  return false;
}

/** Decides about a deletion that was left between data and here. */
async function settleDeletion(context: BlobsContext, blob: Blob): Promise<void> {
  const ticket = blob.deleteTicket!;
  if (await findCommit(context, ticket)) {
    await markDeleted(context.pool, blob.blobId);
    context.appended.notify();
  } else {
    await withdrawDeletion(context.pool, blob.blobId, ticket);
  }
}

async function round(context: BlobsContext, isStopping: () => boolean): Promise<void> {
  for (const blob of await findPending(context.pool, batchSize)) {
    if (isStopping()) return;
    if (!context.committing.has(blob.blobId)) await settleUpload(context, blob);
  }
  for (const blob of await findDeleting(context.pool, context.pendingGraceMs, batchSize)) {
    if (isStopping()) return;
    await settleDeletion(context, blob);
  }
  await context.removeBytes(isStopping);
}

/**
 * Settles what was left undecided, now and every few seconds, until it is stopped. All copies of the service may do so at
 * once: each step asks data, and changes a row only from the state that it was decided in.
 */
export function startSettling(context: BlobsContext): { stop(): Promise<void> } {
  const stopped = new AbortController();
  const run = async () => {
    while (!stopped.signal.aborted) {
      await round(context, () => stopped.signal.aborted).catch((error: unknown) => {
        context.log.warn({ err: error }, 'blobs were not settled, trying again');
      });
      // An abort ends the pause, and that is all that it does.
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
