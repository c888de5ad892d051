import { ServiceError } from '@granary/shared/errors';
import type { BatchRequest } from '@granary/shared/gen/granary/data/v1/BatchRequest';
import type { BatchResponse } from '@granary/shared/gen/granary/data/v1/BatchResponse';
import type { OperationResult } from '@granary/shared/gen/granary/data/v1/OperationResult';
import { toIdempotencyKey, type IdempotencyKey } from '@granary/shared/idempotency/key';
import { newTicket } from '@granary/shared/ids';
import type { Pool } from '@granary/shared/postgres/pool';
import type { App } from '../catalog/app';
import { LIMIT_EXCEEDED } from '../catalog/definition-limit';
import { UNIQUE_VIOLATION, uniqueIndexes } from '../catalog/index-definition';
import { ALREADY_EXISTS } from '../catalog/names';
import { KeptSeparatelyError, keepSeparately } from '../commit/repeated-writes';
import type { CallCommitter, WriteContext } from '../commit/tracing';
import { withFreshSource } from '../query/execute/read-page';
import { resolveReferences } from '../query/execute/references';
import { hasReferences } from '../query/language/references';
import { hasRepeated, operationOf, parseBatch } from './batch-request';
import { ChangeWrite, type ChangeTerms, type Refusing } from './change-write';
import type { DocumentChange } from './document-change';
import { storedVersions, type StoredVersion } from './stored-version';
import { appOf } from './write-request';

/**
 * Runs the operations of a batch in one transaction: all of them or none where it is atomic, else those that are not
 * refused. Throws what is wrong with the request, and the refusal of an atomic batch.
 */
export async function runBatch({ committer, pool }: WriteContext, request: BatchRequest): Promise<BatchResponse> {
  const { changes, atomic } = parseBatch(request.body);
  const run = new BatchRun(committer, pool, appOf(request), {
    isPaid: request.isPaid === true,
    mayReadPrivate: request.mayReadPrivate === true,
  });
  const key = toIdempotencyKey(request.idempotency);
  const { results, replayed } = atomic
    ? await run.commit({ ticketId: request.ticketId, key, changes, refusing: 'together' })
    : await run.separately(request.ticketId, key, changes);
  return { results: [...results], replayed };
}

/** Changes that are to be committed in one transaction. */
interface Changes {
  ticketId: string;
  key: IdempotencyKey | undefined;
  changes: readonly DocumentChange[];
  refusing: Refusing;
}

interface Results {
  /** The results in the order of the changes. */
  results: readonly OperationResult[];
  /** Whether an earlier request with the same key was answered so. */
  replayed: boolean;
}

class BatchRun {
  constructor(
    private readonly committer: CallCommitter,
    private readonly pool: Pool,
    private readonly app: App,
    private readonly terms: ChangeTerms,
  ) {}

  /**
   * Changes that are refused by themselves. They commit together as long as each can be decided without the others;
   * else, of one document twice or where a unique value is taken, each is a commit of its own under a key of its own.
   */
  async separately(
    ticketId: string,
    key: IdempotencyKey | undefined,
    changes: readonly DocumentChange[],
  ): Promise<Results> {
    if (hasRepeated(changes)) {
      // Another batch under the key is refused as a whole.
      if (key) await keepSeparately(this.pool, this.app, key);
      return this.oneByOne(key, changes);
    }
    try {
      return await this.commit({ ticketId, key, changes, refusing: 'separately' });
    } catch (error) {
      if (error instanceof KeptSeparatelyError) return this.oneByOne(key, changes);
      if (!isOfOneChange(error)) throw error;
    }
    if (!key) return this.oneByOne(key, changes);
    await keepSeparately(this.pool, this.app, key);
    try {
      // The same request may have been answered meanwhile.
      return await this.commit({ ticketId, key, changes, refusing: 'separately' });
    } catch (error) {
      if (error instanceof KeptSeparatelyError) return this.oneByOne(key, changes);
      throw error;
    }
  }

  /**
   * Each change in a transaction of its own. Those of one document are committed in their order, and those of a
   * collection with unique values too: a value may be taken once an earlier change gave it up.
   */
  private async oneByOne(key: IdempotencyKey | undefined, changes: readonly DocumentChange[]): Promise<Results> {
    const answers = new Map<DocumentChange, Results>();
    const ends = new Map<string, Promise<void>>();
    const hasUniques = await this.collectionsWithUniques(changes);
    for (const [index, change] of changes.entries()) {
      const keyOfOne = key && { ...key, path: `${key.path}#${index}` };
      const answer = async () => void answers.set(change, await this.alone(keyOfOne, change));
      const chain = hasUniques.has(change.collection) ? change.collection : `#${index}`;
      const before = ends.get(chain);
      ends.set(chain, before ? before.then(answer) : answer());
    }
    await Promise.all(ends.values());
    const inOrder = changes.map((change) => answers.get(change)!);
    return {
      results: inOrder.flatMap(({ results }) => results),
      replayed: inOrder.every(({ replayed }) => replayed),
    };
  }

  private async collectionsWithUniques(changes: readonly DocumentChange[]): Promise<ReadonlySet<string>> {
    const names = [...new Set(changes.map(({ collection }) => collection))];
    const collections = await Promise.all(names.map((name) => this.committer.collections.get(this.app, name)));
    return new Set(names.filter((_, index) => uniqueIndexes(collections[index]?.indexes ?? []).length > 0));
  }

  private async alone(key: IdempotencyKey | undefined, change: DocumentChange): Promise<Results> {
    const ticketId = newTicket('c', this.app.number);
    try {
      return await this.commit({ ticketId, key, changes: [change], refusing: 'separately' });
    } catch (error) {
      if (!(error instanceof ServiceError)) throw error;
      return { results: [toRefused(change, error)], replayed: false };
    }
  }

  /** Commits changes in one transaction. Throws their refusal, of changes that are refused separately only some. */
  async commit({ ticketId, key, changes, refusing }: Changes): Promise<Results> {
    const { committer, pool, app } = this;
    let write!: ChangeWrite;
    try {
      // A data set that is replaced under a condition has another table from then on, and nothing was committed.
      const committed = await withFreshSource(async () => {
        write = new ChangeWrite(ticketId, key, await this.resolved(changes), this.terms, refusing);
        return committer.submit(app, write);
      });
      const replayed = committed.ticketId !== ticketId;
      const refusals = replayed ? write.refusalsOf(committed.keptNote) : write.refusals;
      const accepted = write.changes.filter((change) => !refusals.has(change));
      const stored = await storedVersions(pool, committer.collections, app, committed, accepted);
      const results = new Map(accepted.map((change, index) => [change, toResult(change, stored[index]!)]));
      return {
        results: write.changes.map((change) => results.get(change) ?? toRefused(change, refusals.get(change)!)),
        replayed,
      };
    } catch (error) {
      if (refusing === 'together' || !(error instanceof ServiceError) || !write.isRefused) throw error;
      return {
        results: write.changes.map((change) => toRefused(change, write.refusals.get(change)!)),
        replayed: false,
      };
    }
  }

  /**
   * The changes with conditions that can be compiled. A change whose condition names what does not exist is refused
   * once it is known that its Idempotency-Key has no answer.
   */
  private async resolved(changes: readonly DocumentChange[]): Promise<readonly DocumentChange[]> {
    if (!changes.some(({ condition }) => condition && hasReferences(condition))) return changes;
    const { pool, app } = this;
    return Promise.all(
      changes.map(async (change) => {
        const { condition } = change;
        if (!condition || !hasReferences(condition)) return change;
        try {
          return { ...change, condition: await resolveReferences(pool, app.appId, condition) };
        } catch (error) {
          if (!(error instanceof ServiceError)) throw error;
          return { ...change, condition: undefined, refusal: error };
        }
      }),
    );
  }
}

/** Whether an error that ended a transaction may be that of one change alone: others commit without it. */
const isOfOneChange = (error: unknown): boolean =>
  error instanceof ServiceError && reasonsOfOneChange.has(error.reason);

/** A unique value that is taken; a collection that cannot be created. */
const reasonsOfOneChange: ReadonlySet<string> = new Set([UNIQUE_VIOLATION, ALREADY_EXISTS, LIMIT_EXCEEDED]);

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

function toRefused(change: DocumentChange, error: ServiceError): OperationResult {
  const { code: status, reason, message, details } = error;
  const detailsJson = Buffer.from(JSON.stringify(details));
  const { collection, id } = change;
  const operation = operationOf(change);
  return { ...nothingStored, operation, collection, id, error: { status, reason, message, detailsJson } };
}
