import { invalid } from '@granary/shared/errors';
import type { StoreRequest } from '@granary/shared/gen/granary/data/v1/StoreRequest';
import type { StoreResponse } from '@granary/shared/gen/granary/data/v1/StoreResponse';
import type { CollectionRef } from '../catalog/collection';
import { nextLink, type Head } from '../chain/hash-chain';
import type { WriteContext } from '../commit/tracing';
import {
  sizeClassOf,
  type Committed,
  type DocumentIds,
  type PlanState,
  type SizeClass,
  type Write,
  type WriteLink,
} from '../commit/write';
import { readLargeStoreRoot, readStoreRoot } from '../documents/store-root';
import { hasSameRules, prepareAgain, prepareBeforeCommit, writtenBytes, type PreparedBody } from './prepare-body';
import { pricesOrRefusal, requirePaid } from './paid-write';
import { appOf, createdCollection, resultsJson } from './write-request';
import { toIdempotencyKey, type IdempotencyKey } from '@granary/shared/idempotency/key';

/**
 * Stores the documents of a `/store` body: all of them commit together or not at all. Throws VALIDATION_FAILED,
 * MALFORMED_JSON, SCHEMA_VIOLATION, UNIQUE_VIOLATION, FORBIDDEN (another app's root), IDEMPOTENCY_KEY_REUSED,
 * PAYMENT_REQUIRED where the caller does not accept a price.
 */
export async function storeDocuments({ committer, pool }: WriteContext, request: StoreRequest): Promise<StoreResponse> {
  const app = appOf(request);
  const { body } = request;
  const isSmall = sizeClassOf(body.length) === 'small';
  const root = isSmall ? readStoreRoot(body, app.appId) : await readLargeStoreRoot(body, app.appId);
  const collection = await committer.collections.get(app, root.collection);
  const prepared = await prepareBeforeCommit(committer, root, body, collection);
  if (prepared?.documents.length === 0) throw invalid('There is nothing to store', { data: ['must not be empty'] });
  const write = new StoreWrite(request, root.collection, prepared);
  let committed: Committed;
  try {
    committed = await committer.submit(app, write);
  } catch (error) {
    const { acceptsPrice = false } = request;
    const unpaid = await pricesOrRefusal(pool, write, error, { acceptsPrice, collection: '', body });
    return { ticketId: '', resultsJson: Buffer.alloc(0), unpaid };
  }
  return { ticketId: committed.ticketId, resultsJson: resultsJson(committed), ...createdCollection(committed) };
}

/** The documents of one `/store` request: one link. */
class StoreWrite implements Write {
  readonly ticketId: string;
  readonly operation = 'store';
  readonly collections: readonly string[];
  readonly userAddress: string | null;
  readonly idempotency: IdempotencyKey | undefined;
  readonly isHeld: boolean;
  readonly bytes: number;
  readonly sizeClass: SizeClass;
  private readonly body: Buffer;
  private readonly isPaid: boolean;
  private knownIds: DocumentIds | undefined;

  /** `prepared` is undefined when the documents did not fit the schema that was known. */
  constructor(
    request: StoreRequest,
    private readonly collection: string,
    private prepared: PreparedBody | undefined,
  ) {
    this.ticketId = request.ticketId;
    this.collections = [collection];
    this.userAddress = request.userAddress ?? null;
    this.idempotency = toIdempotencyKey(request.idempotency);
    this.isHeld = request.isHeld === true;
    this.body = request.body;
    this.isPaid = request.isPaid === true;
    this.bytes = Math.max(request.body.length, prepared ? writtenBytes(prepared.documents) : 0);
    this.sizeClass = sizeClassOf(this.bytes);
  }

  ids(): DocumentIds | undefined {
    if (!this.prepared) return undefined;
    const { ids } = this.prepared.content;
    return (this.knownIds ??= { set: new Set(ids), count: ids.length });
  }

  links(head: Head, { collections }: PlanState): WriteLink[] {
    const { collection } = this;
    const existing = collections.get(collection);
    const { documents, content } = this.preparedFor(existing);
    requirePaid(existing, this.isPaid, documents);
    return [{ collection, link: nextLink(head, content), documents }];
  }

  private preparedFor(collection: CollectionRef | undefined): PreparedBody {
    if (!this.prepared || !hasSameRules(this.prepared.collection, collection)) {
      this.prepared = prepareAgain(this.collection, this.body, collection);
      this.knownIds = undefined;
    }
    return this.prepared;
  }
}
