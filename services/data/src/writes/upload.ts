import { conflict, invalid } from '@granary/shared/errors';
import type { CommitUploadRequest } from '@granary/shared/gen/granary/data/v1/CommitUploadRequest';
import type { CommitUploadResponse } from '@granary/shared/gen/granary/data/v1/CommitUploadResponse';
import { readJson, toText, type JsonValue } from '@granary/shared/json/value';
import { nameRule } from '@granary/shared/names';
import type { CollectionRef } from '../catalog/collection';
import { ALREADY_EXISTS, isName } from '../catalog/names';
import { linkContent, nextLink, type Head } from '../chain/hash-chain';
import type { WriteContext } from '../commit/tracing';
import {
  documentKey,
  sizeClassOf,
  type DocumentIds,
  type DocumentRead,
  type PlanState,
  type PresentDocuments,
  type SizeClass,
  type Write,
  type WriteLink,
} from '../commit/write';
import { prepareDocumentOf } from '../documents/parser';
import { translateRequestErrors } from '../json/request-errors';
import { rulesOf } from '../documents/rules';
import { requirePaid } from './paid-write';
import { appOf, createdCollection } from './write-request';
import { toIdempotencyKey, type IdempotencyKey } from '@granary/shared/idempotency/key';

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
 * Makes an upload visible: a link of its own for the bytes, then one for its metadata document, in one transaction.
 * Throws what storing the metadata document throws.
 */
export const commitUpload = (context: WriteContext, request: CommitUploadRequest): Promise<CommitUploadResponse> =>
  commit(context, request, false);

/** The same under an id that the client has chosen. Throws ALREADY_EXISTS, too. */
export const commitUploadUnderId = (
  context: WriteContext,
  request: CommitUploadRequest,
): Promise<CommitUploadResponse> => commit(context, request, true);

async function commit(
  { committer }: WriteContext,
  request: CommitUploadRequest,
  isIdChosen: boolean,
): Promise<CommitUploadResponse> {
  const app = appOf(request);
  if (!isName(request.collection)) throw invalid('The collection is not valid', { collection: [nameRule] });
  const committed = await committer.submit(app, new UploadWrite(request, customMetadata(request.metadata), isIdChosen));
  return {
    ticketId: committed.ticketId,
    blobId: committed.ids[0]!,
    transactionHash: committed.hash.toString('hex'),
    height: committed.height.toString(),
    ...createdCollection(committed),
    collectionNumber: committed.collectionNumber.toString(),
  };
}

/** An upload: one link for its bytes, one for its metadata document, which contains hash and height of the first. */
class UploadWrite implements Write {
  readonly ticketId: string;
  readonly operation = 'upload';
  readonly collections: readonly string[];
  readonly userAddress = null;
  readonly idempotency: IdempotencyKey | undefined;
  readonly isHeld: boolean;
  readonly bytes: number;
  readonly sizeClass: SizeClass;
  readonly reads?: readonly DocumentRead[];

  constructor(
    private readonly request: CommitUploadRequest,
    private readonly custom: Map<string, JsonValue>,
    isIdChosen: boolean,
  ) {
    this.ticketId = request.ticketId;
    this.collections = [request.collection];
    this.idempotency = toIdempotencyKey(request.idempotency);
    this.isHeld = request.isHeld === true;
    this.bytes = request.metadata.length;
    this.sizeClass = sizeClassOf(this.bytes);
    if (isIdChosen) {
      this.reads = [{ collection: request.collection, id: request.blobId, condition: undefined, omitsBody: true }];
    }
  }

  ids(): DocumentIds {
    return { set: new Set([this.request.blobId]), count: 1 };
  }

  links(head: Head, { collections, documents }: PlanState): WriteLink[] {
    const { blobId, sha256, collection, isPaid } = this.request;
    if (this.reads && this.isTaken(collections.get(collection), documents)) {
      throw conflict(ALREADY_EXISTS, `The collection has a file or a document ${blobId} already`);
    }
    const bytes = { id: blobId, sha256: Buffer.from(sha256, 'hex').toString('latin1') };
    const upload = nextLink(head, linkContent(collection, [bytes]));
    const text = metadataText(this.request, upload.hash.toString('hex'), upload.height, this.custom);
    const document = prepareDocumentOf(blobId, Buffer.from(text), rulesOf(collections.get(collection)), {
      path: 'metadata',
    });
    requirePaid(collections.get(collection), isPaid === true, [document]);
    const metadata = nextLink(upload, linkContent(collection, [document]));
    return [
      { collection, link: upload, documents: [] },
      { collection, link: metadata, documents: [document] },
    ];
  }

  /** Whether a blob, or a document that is not deleted, has the id. */
  private isTaken(collection: CollectionRef | undefined, documents: PresentDocuments): boolean {
    if (!collection) return false;
    const { blobId, takenInCollection: number } = this.request;
    if (documents.get(documentKey(collection.name, blobId))?.deleted === false) return true;
    return typeof number === 'string' && (number === '0' || number === collection.number.toString());
  }
}

function customMetadata(bytes: Buffer): Map<string, JsonValue> {
  if (bytes.length === 0) return new Map();
  const metadata = translateRequestErrors(() => readJson(bytes, { maxDepth: 64 }), 'metadata');
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
  const metadata = JSON.stringify({
    id: request.blobId,
    blob_id: request.blobId,
    content_type: request.contentType,
    size_bytes: Number(request.sizeBytes),
    uploaded_at: request.uploadedAt,
    tx_hash: hash,
    celestia_height: Number(height),
    sha256: request.sha256,
  });
  return custom.size === 0 ? metadata : `${metadata.slice(0, -1)},${toText(custom).slice(1)}`;
}
