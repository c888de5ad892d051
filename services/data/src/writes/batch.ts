import { ServiceError } from '@granary/shared/errors';
import type { BatchRequest } from '@granary/shared/gen/granary/data/v1/BatchRequest';
import type { BatchResponse } from '@granary/shared/gen/granary/data/v1/BatchResponse';
import type { OperationResult } from '@granary/shared/gen/granary/data/v1/OperationResult';
import { newTicket } from '@granary/shared/ids';
import type { Pool } from '@granary/shared/postgres/pool';
import type { App } from '../catalog/app';
import { toIdempotencyKey, type IdempotencyKey } from '../catalog/idempotency';
import type { CallCommitter } from '../commit/tracing';
import { withFreshSource } from '../query/execute/read-page';
import { resolveReferences } from '../query/execute/references';
import { hasReferences } from '../query/language/references';
import { operationOf, parseBatch } from './batch-request';
import { ChangeWrite } from './change-write';
import type { DocumentChange } from './document-change';
import { storedVersions, type StoredVersion } from './stored-version';
import { appOf } from './write-request';

/**
 * Runs the operations of a batch: all in one transaction where it is atomic, else each by itself, with a result of its
 * own. Throws what is wrong with the request, and the refusal of an atomic batch.
 */
export async function runBatch(committer: CallCommitter, pool: Pool, request: BatchRequest): Promise<BatchResponse> {
  const { changes, atomic } = parseBatch(request.body);
  const run = new BatchRun(committer, pool, appOf(request));
  const key = toIdempotencyKey(request.idempotency);
  if (atomic) {
    const { ticketId, versions } = await run.commit(request.ticketId, key, changes);
    return {
      results: changes.map((change, at) => toResult(change, versions[at]!)),
      replayed: ticketId !== request.ticketId,
    };
  }
  const replays: boolean[] = [];
  const results = await Promise.all(
    changes.map(async (change, at) => {
      const ticketId = newTicket('c', run.app.number);
      try {
        const committed = await run.commit(ticketId, keyOfOperation(key, at), [change]);
        replays.push(committed.ticketId !== ticketId);
        return toResult(change, committed.versions[0]!);
      } catch (error) {
        return refused(change, error);
      }
    }),
  );
  return { results, replayed: replays.length > 0 && replays.every(Boolean) };
}

class BatchRun {
  constructor(
    private readonly committer: CallCommitter,
    private readonly pool: Pool,
    readonly app: App,
  ) {}

  /** Commits changes together. Throws their refusal. */
  async commit(
    ticketId: string,
    key: IdempotencyKey | undefined,
    changes: readonly DocumentChange[],
  ): Promise<{ ticketId: string; versions: StoredVersion[] }> {
    const { committer, pool, app } = this;
    // A data set that is replaced under a condition has another table from then on, and nothing was committed.
    const committed = await withFreshSource(async () =>
      committer.submit(app, new ChangeWrite(ticketId, key, await this.resolved(changes))),
    );
    const versions = await storedVersions(pool, committer.collections, app, committed, changes);
    return { ticketId: committed.ticketId, versions };
  }

  /** The changes with conditions that can be compiled. Throws INVALID_QUERY. */
  private async resolved(changes: readonly DocumentChange[]): Promise<readonly DocumentChange[]> {
    if (!changes.some(({ condition }) => condition && hasReferences(condition))) return changes;
    const { pool, app } = this;
    return Promise.all(
      changes.map(async (change) => ({
        ...change,
        condition: change.condition && (await resolveReferences(pool, app.appId, change.condition)),
      })),
    );
  }
}

/** The key of one operation: each of them is kept by itself, so that a repeated batch completes what is missing. */
const keyOfOperation = (key: IdempotencyKey | undefined, at: number): IdempotencyKey | undefined =>
  key && { ...key, path: `${key.path}#${at}` };

const toResult = (
  change: DocumentChange,
  { id, version, height, hash, created, deleted }: StoredVersion,
): OperationResult => ({
  operation: operationOf(change),
  collection: change.collection,
  id,
  version: version.toString(),
  height: height.toString(),
  hash: hash.toString('hex'),
  created,
  deleted,
});

const nothingStored = { version: '0', height: '0', hash: '', created: false, deleted: false };

/** Throws an error that is no refusal. */
function refused(change: DocumentChange, error: unknown): OperationResult {
  if (!(error instanceof ServiceError)) throw error;
  const { code: status, reason, message, details } = error;
  const detailsJson = Buffer.from(JSON.stringify(details));
  const { collection, id } = change;
  const operation = operationOf(change);
  return { ...nothingStored, operation, collection, id, error: { status, reason, message, detailsJson } };
}
