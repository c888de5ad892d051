import { conflict, type ServiceError } from '@granary/shared/errors';
import { parseMergePatch, type MergePatch } from '../json/merge-patch';
import type { Condition } from '../query/language/condition';
import type { PresentDocument } from '../commit/write';
import { ALREADY_EXISTS } from '../catalog/names';
import { noSuchDocument, preconditionFailed } from '../documents/document-error';
import { translateRequestErrors } from '../json/request-errors';

/** Versions that `If-Match` or `If-None-Match` names. */
export interface VersionMatch {
  any: boolean;
  numbers: readonly bigint[];
}

/** A change of one document, and what must hold for its present version. */
export interface DocumentChange {
  collection: string;
  id: string;
  /**
   * - `create`: `body` is a document that must not exist yet.
   * - `put`: `body` is the document, whether it exists or not.
   * - `merge`: `body` is a JSON merge patch on the document.
   * - `delete`: the document is marked as deleted; `body` is empty.
   */
  kind: 'create' | 'put' | 'merge' | 'delete';
  body: Buffer;
  /** The patch that `body` is, once it has been read. */
  patch?: MergePatch | undefined;
  ifMatch?: VersionMatch | undefined;
  ifNoneMatch?: VersionMatch | undefined;
  /** The present version must match it; a document that does not exist does not. */
  condition?: Condition | undefined;
  /** Why the change cannot be made, where that is known before: final only where its Idempotency-Key has no answer. */
  refusal?: ServiceError | undefined;
  /** The path of `body` in the request, empty where it is the request. */
  path: string;
}

/**
 * Whether the present version of the document decides what a change does; else its version is known from the upsert.
 */
export const dependsOnPresent = ({ kind, ifMatch, ifNoneMatch, condition }: DocumentChange): boolean =>
  kind !== 'put' || ifMatch !== undefined || ifNoneMatch !== undefined || condition !== undefined;

/** The changes of each collection, in the order in which they name their collections first. */
export function changesByCollection(
  changes: readonly DocumentChange[],
): ReadonlyMap<string, readonly DocumentChange[]> {
  const byCollection = new Map<string, DocumentChange[]>();
  for (const change of changes) {
    const others = byCollection.get(change.collection);
    if (others) others.push(change);
    else byCollection.set(change.collection, [change]);
  }
  return byCollection;
}

const deletion = parseMergePatch(Buffer.from('{"deleted":true}'));

/**
 * The text that a change makes of the latest version of a document. Throws DOCUMENT_NOT_FOUND, ALREADY_EXISTS,
 * PRECONDITION_FAILED, MALFORMED_JSON, VALIDATION_FAILED.
 */
export function changedText(change: DocumentChange, latest: PresentDocument | undefined): Buffer {
  const present = latest?.deleted ? undefined : latest;
  const { kind, id, body, path } = change;
  if (!present && (kind === 'merge' || kind === 'delete')) throw noSuchDocument(id);
  if (present && kind === 'create') throw conflict(ALREADY_EXISTS, `There is a document ${id} already`);
  checkPreconditions(change, present);
  switch (kind) {
    case 'create':
    case 'put':
      return body;
    case 'merge':
      return translateRequestErrors(() => (change.patch ??= parseMergePatch(body)).applyTo(present!.body), path);
    case 'delete':
      return deletion.applyTo(present!.body);
  }
}

function checkPreconditions(
  { id, ifMatch, ifNoneMatch, condition }: DocumentChange,
  present: PresentDocument | undefined,
): void {
  const details = { version: present ? Number(present.version) : null };
  if (ifMatch && !names(ifMatch, present)) {
    throw preconditionFailed(`The document ${id} is not in a version that If-Match names`, details);
  }
  if (ifNoneMatch && names(ifNoneMatch, present)) {
    throw preconditionFailed(`The document ${id} is in a version that If-None-Match names`, details);
  }
  if (condition && !present?.matches)
    throw preconditionFailed(`The document ${id} does not meet the conditions`, details);
}

const names = ({ any, numbers }: VersionMatch, present: PresentDocument | undefined): boolean =>
  present !== undefined && (any || numbers.includes(present.version));
