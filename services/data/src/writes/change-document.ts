import { invalid } from '@granary/shared/errors';
import type { ChangeDocumentRequest } from '@granary/shared/gen/granary/data/v1/ChangeDocumentRequest';
import type { ChangeDocumentResponse } from '@granary/shared/gen/granary/data/v1/ChangeDocumentResponse';
import type { Versions } from '@granary/shared/gen/granary/data/v1/Versions';
import { toIdempotencyKey } from '@granary/shared/idempotency/key';
import type { App } from '../catalog/app';
import { requireAddressable } from '../documents/parser';
import { cipherOf, UndecryptableError } from '../encryption/document-cipher';
import { recordText } from '../query/execute/encrypted-read';
import type { CallCommitter, WriteContext } from '../commit/tracing';
import type { Committed } from '../commit/write';
import { ChangeWrite } from './change-write';
import type { DocumentChange, VersionMatch } from './document-change';
import { pricesOrRefusal } from './paid-write';
import { storedVersions, type StoredVersion } from './stored-version';
import { appOf, createdCollection } from './write-request';

/**
 * Changes one document. Throws what storing it throws, COLLECTION_NOT_FOUND, DOCUMENT_NOT_FOUND, PRECONDITION_FAILED.
 */
export async function changeDocument(
  { committer, pool }: WriteContext,
  request: ChangeDocumentRequest,
): Promise<ChangeDocumentResponse> {
  const app = appOf(request);
  const change = toChange(request);
  const mayReadPrivate = request.mayReadPrivate === true;
  const write = new ChangeWrite(request.ticketId, toIdempotencyKey(request.idempotency), [change], {
    isPaid: request.isPaid === true,
    isHeld: request.isHeld === true,
    mayReadPrivate,
  });
  const collection = committer.collections.peek(app.number, change.collection);
  if (collection && !write.reads)
    write.prepare({ collections: new Map([[collection.name, collection]]), documents: new Map() });
  let committed: Committed;
  try {
    committed = await committer.submit(app, write);
  } catch (error) {
    const unpaid = await pricesOrRefusal(pool, write, error, { ...request, collection: change.collection });
    return { ticketId: '', version: '0', json: Buffer.alloc(0), created: false, height: '0', unpaid };
  }
  const [stored] = await storedVersions(pool, committer.collections, app, committed, [change]);
  return {
    ticketId: committed.ticketId,
    version: stored!.version.toString(),
    json: await shownText(committer, app, change, stored!, mayReadPrivate),
    created: stored!.created,
    height: stored!.height.toString(),
    ...createdCollection(committed),
  };
}

/** The document as the caller may see it. */
async function shownText(
  { collections }: CallCommitter,
  app: App,
  { collection: name }: DocumentChange,
  { json }: StoredVersion,
  mayReadPrivate: boolean,
): Promise<Buffer> {
  const shown = async () => {
    const collection = await collections.get(app, name);
    const show = collection && recordText({ cipher: cipherOf(collection) }, mayReadPrivate);
    return show ? show(json) : json;
  };
  try {
    return await shown();
  } catch (error) {
    if (!(error instanceof UndecryptableError)) throw error;
    // The version of a repeated call: another copy has encrypted it by a key that is newer than the cached collection.
    collections.forget(app.number, name);
    return shown();
  }
}

function toChange({ collection, id, change, body, ifMatch, ifNoneMatch }: ChangeDocumentRequest): DocumentChange {
  if (change !== 'put' && change !== 'merge' && change !== 'delete') throw invalid('There is no such change');
  if (change !== 'delete') requireAddressable({ id }, '');
  return { collection, id, kind: change, body, ifMatch: toMatch(ifMatch), ifNoneMatch: toMatch(ifNoneMatch), path: '' };
}

const toMatch = (versions: Versions | null | undefined): VersionMatch | undefined =>
  versions ? { any: versions.any, numbers: versions.numbers.map(BigInt) } : undefined;
