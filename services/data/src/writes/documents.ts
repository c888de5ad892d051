import type { CommitUploadRequest } from '@granary/shared/gen/granary/data/v1/CommitUploadRequest';
import type { CommitUploadResponse } from '@granary/shared/gen/granary/data/v1/CommitUploadResponse';
import type { StoreRequest } from '@granary/shared/gen/granary/data/v1/StoreRequest';
import type { StoreResponse } from '@granary/shared/gen/granary/data/v1/StoreResponse';
import type { ValidateDocumentsRequest } from '@granary/shared/gen/granary/data/v1/ValidateDocumentsRequest';
import { invalid, ServiceError } from '@granary/shared/errors';
import { readJson, toText, type JsonValue } from '@granary/shared/json/value';
import type { Pool } from '@granary/shared/postgres/pool';
import { requireCollection, type CollectionRef } from '../catalog/collection';
import { linkContent, nextLink, resultsJson, type Committed, type LinkContent } from '../commit/commit-log';
import type { Entry } from '../commit/head';
import type { App } from '../commit/batch';
import { toIdempotencyKey } from '../commit/idempotency';
import { isName, nameRule } from '../catalog/names';
import {
  prepareBody,
  prepareLargeBody,
  prepareOwnDocument,
  readLargeStoreRoot,
  readStoreRoot,
  refusing,
  rulesOf,
  type PreparedDocument,
} from '../documents/parser';
import { SCHEMA_VIOLATION } from '../catalog/schema';
import type { Committing } from '../commit/tracing';
import type { BuiltLink, DocumentIds, Write } from '../commit/write-queue';

/** A smaller body is read in less than a slice. */
const slicedFromBytes = 128 * 1024;

/** The app of a message; its number came with the caller's verified key. */
const appOf = (request: { appId: string; appNumber: string }): App => ({
  number: BigInt(request.appNumber),
  appId: request.appId,
});

/**
 * Stores the documents of a `/store` body: all of them commit together or not at all. Throws VALIDATION_FAILED,
 * MALFORMED_JSON, SCHEMA_VIOLATION, UNIQUE_VIOLATION, FORBIDDEN (another app's root), IDEMPOTENCY_KEY_REUSED.
 */
export async function storeDocuments(committer: Committing, request: StoreRequest): Promise<StoreResponse> {
  const app = appOf(request);
  const { body } = request;
  const collection = isLarge(body) ? await readLargeStoreRoot(body, app.appId) : readStoreRoot(body, app.appId);
  // Read before the lock is taken; again under it only if the catalog has moved on.
  const handle = await committer.handles.get(app, collection);
  let prepared = await prepareAhead(committer, collection, body, handle);
  if (prepared?.documents.length === 0) throw invalid('There is nothing to store', { data: ['must not be empty'] });
  const write: Write = {
    ticketId: request.ticketId,
    operation: 'store',
    collection,
    userAddress: request.userAddress ?? null,
    idempotency: toIdempotencyKey(request.idempotency),
    bytes: Math.max(body.length, prepared ? sizeOf(prepared.documents) : 0),
    ids: () => prepared && (prepared.ids ??= idsOf(prepared.content)),
    build: (handle, head): BuiltLink[] => {
      if (!prepared || !isSameState(prepared.handle, handle)) prepared = prepareFor(collection, body, handle);
      return [{ link: nextLink(head, prepared.content), documents: prepared.documents }];
    },
  };
  const committed = await committer.submit(app, write);
  return { ticketId: committed.ticketId, resultsJson: resultsJson(committed), ...createdCollection(committed) };
}

/** The collection that a write has made, if it has. */
const createdCollection = ({ collection: name, createdWithAccess: readAccess }: Committed) =>
  readAccess === undefined ? {} : { createdCollection: { name, readAccess } };

const isLarge = (body: Buffer): boolean => body.length > slicedFromBytes;

interface PreparedBody {
  documents: PreparedDocument[];
  content: LinkContent;
  /** Once somebody has asked for them. */
  ids?: DocumentIds;
  /** What they were prepared for. */
  handle: CollectionRef | undefined;
}

const prepareFor = (collection: string, body: Buffer, handle: CollectionRef | undefined): PreparedBody =>
  preparedBody(collection, prepareBody(body, rulesOf(handle)), handle);

const preparedBody = (
  collection: string,
  documents: PreparedDocument[],
  handle: CollectionRef | undefined,
): PreparedBody => ({ documents, content: linkContent(collection, documents.map(toEntry)), handle });

const toEntry = ({ id, sha256 }: PreparedDocument): Entry => ({ id, sha256: Buffer.from(sha256, 'latin1') });

/**
 * What can be read before the lock is taken; a large body while others have their turns. That a document does not fit
 * the schema is not final by then: the schema may have changed, or the write be a repeated one that has an answer.
 * Throws any other error.
 */
async function prepareAhead(
  committer: Committing,
  collection: string,
  body: Buffer,
  handle: CollectionRef | undefined,
): Promise<PreparedBody | undefined> {
  try {
    const rules = rulesOf(handle);
    const documents = isLarge(body)
      ? await committer.holding(body.length, () => prepareLargeBody(body, rules))
      : prepareBody(body, rules);
    return preparedBody(collection, documents, handle);
  } catch (error) {
    if (error instanceof ServiceError && error.reason === SCHEMA_VIOLATION) return undefined;
    throw error;
  }
}

/** A revision that was seen in a transaction that was rolled back comes again, the number of a collection does not. */
const isSameState = (a: CollectionRef | undefined, b: CollectionRef | undefined): boolean =>
  a?.number === b?.number && a?.revision === b?.revision;

const idsOf = ({ ids }: LinkContent): DocumentIds => ({ set: new Set(ids), count: ids.length });

/** Bytes that are to be written, with something for the row of each document. */
const sizeOf = (documents: readonly PreparedDocument[]): number =>
  documents.reduce((sum, { start, end }) => sum + end - start + 64, 0);

/** Fields that the service writes into the metadata document of an upload. */
const uploadFields = [
  'id',
  'blob_id',
  'content_type',
  'size_bytes',
  'uploaded_at',
  'tx_hash',
  'celestia_height',
  'sha256',
  'deleted',
];

/**
 * Makes an upload visible: a commit of its own for the bytes, then one for its metadata document, in one transaction.
 * Throws what storing the metadata document throws.
 */
export async function commitUpload(committer: Committing, request: CommitUploadRequest): Promise<CommitUploadResponse> {
  const app = appOf(request);
  if (!isName(request.collection)) throw invalid('The collection is not valid', { collection: [nameRule] });
  const custom = customMetadata(request.metadata);
  const write: Write = {
    ticketId: request.ticketId,
    operation: 'upload',
    collection: request.collection,
    userAddress: null,
    idempotency: toIdempotencyKey(request.idempotency),
    bytes: request.metadata.length,
    ids: () => ({ set: new Set([request.blobId]), count: 1 }),
    build: (handle, head): BuiltLink[] => {
      const bytes = { id: request.blobId, sha256: Buffer.from(request.sha256, 'hex') };
      const upload = nextLink(head, linkContent(request.collection, [bytes]));
      const text = metadataText(request, upload.hash.toString('hex'), upload.height, custom);
      const document = prepareOwnDocument(Buffer.from(text), rulesOf(handle));
      return [
        { link: upload, documents: [] },
        { link: nextLink(upload, linkContent(request.collection, [toEntry(document)])), documents: [document] },
      ];
    },
  };
  const committed = await committer.submit(app, write);
  return {
    ticketId: committed.ticketId,
    blobId: committed.ids[0]!,
    transactionHash: committed.hash.toString('hex'),
    height: committed.height.toString(),
    ...createdCollection(committed),
    collectionNumber: committed.collectionNumber.toString(),
  };
}

function customMetadata(bytes: Buffer): Map<string, JsonValue> {
  if (bytes.length === 0) return new Map();
  const metadata = refusing(() => readJson(bytes, { maxDepth: 64 }), 'metadata');
  if (!(metadata instanceof Map)) throw invalid('The metadata is not valid', { metadata: ['must be a JSON object'] });
  const taken = uploadFields.filter((field) => metadata.has(field));
  if (taken.length === 0) return metadata;
  throw invalid(
    'The metadata is not valid',
    Object.fromEntries(taken.map((field) => [`metadata.${field}`, ['is written by the service']])),
  );
}

function metadataText(
  request: CommitUploadRequest,
  hash: string,
  height: bigint,
  custom: Map<string, JsonValue>,
): string {
  const own = JSON.stringify({
    id: request.blobId,
    blob_id: request.blobId,
    content_type: request.contentType,
    size_bytes: Number(request.sizeBytes),
    uploaded_at: request.uploadedAt,
    tx_hash: hash,
    celestia_height: Number(height),
    sha256: request.sha256,
  });
  return custom.size === 0 ? own : `${own.slice(0, -1)},${toText(custom).slice(1)}`;
}

/** Says whether documents would be stored, without storing them: `{"valid": …, "errors": {…}}`. */
export async function validateDocuments(pool: Pool, request: ValidateDocumentsRequest): Promise<Buffer> {
  const handle = await requireCollection(pool, request.appId, request.collection);
  try {
    const documents = prepareBody(request.body, rulesOf(handle), { single: true });
    return Buffer.from(JSON.stringify({ valid: true, document_count: documents.length, errors: {} }));
  } catch (error) {
    // What is wrong with a document is the answer; what is wrong with the request is an error as everywhere.
    if (!(error instanceof ServiceError) || !isAboutDocuments(error)) throw error;
    return Buffer.from(JSON.stringify({ valid: false, errors: error.details }));
  }
}

function isAboutDocuments(error: ServiceError): boolean {
  const paths = Object.keys(error.details);
  return paths.length > 0 && paths.every((path) => /^data[[.]/.test(path));
}
