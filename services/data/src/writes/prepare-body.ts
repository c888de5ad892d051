import { ServiceError } from '@granary/shared/errors';
import type { CollectionRef } from '../catalog/collection';
import { SCHEMA_VIOLATION } from '../catalog/schema';
import { linkContent, type LinkContent } from '../chain/hash-chain';
import type { CallCommitter } from '../commit/tracing';
import { sizeClassOf } from '../commit/write';
import { prepareBody, prepareLargeBody, type PreparedDocument } from '../documents/parser';
import type { StoreRoot } from '../documents/store-root';
import { rulesOf } from '../documents/rules';

/** The documents of a `/store` body, as they are written to a collection in one state of the catalog. */
export interface PreparedBody {
  documents: readonly PreparedDocument[];
  content: LinkContent;
  collection: CollectionRef | undefined;
}

/**
 * Prepares a body before its write is submitted; a large one in time slices. Undefined when a document does not fit the
 * schema: that is final only under the lock, for the schema may have changed, or a repeated write have an answer.
 * Throws any other error.
 */
export async function prepareBeforeCommit(
  committer: CallCommitter,
  { collection: name, rest }: StoreRoot,
  body: Buffer,
  collection: CollectionRef | undefined,
): Promise<PreparedBody | undefined> {
  try {
    const rules = rulesOf(collection);
    const documents =
      sizeClassOf(body.length) === 'small'
        ? prepareBody(body, rules, { rest })
        : await committer.parseWithin(body.length, () => prepareLargeBody(body, rules, { rest }));
    return preparedBody(name, documents, collection);
  } catch (error) {
    if (error instanceof ServiceError && error.reason === SCHEMA_VIOLATION) return undefined;
    throw error;
  }
}

/** Prepares a body for a collection in another state of the catalog. Throws SCHEMA_VIOLATION. */
export const prepareAgain = (name: string, body: Buffer, collection: CollectionRef | undefined): PreparedBody =>
  preparedBody(name, prepareBody(body, rulesOf(collection)), collection);

const preparedBody = (
  name: string,
  documents: PreparedDocument[],
  collection: CollectionRef | undefined,
): PreparedBody => ({ documents, content: linkContent(name, documents), collection });

/**
 * Whether a body that was prepared for `before` is right for `now`. By the number too: a revision that was read in a
 * transaction that was rolled back comes again.
 */
export function hasSameRules(before: CollectionRef | undefined, now: CollectionRef | undefined): boolean {
  if (before === now) return true;
  if (before && now) return before.number === now.number && before.revision === now.revision;
  return isPlain(before) && isPlain(now);
}

/** Documents of a collection without schema and indexes are prepared as those of one that is still to be created. */
const isPlain = (collection: CollectionRef | undefined): boolean =>
  !collection || (!collection.schema && !collection.encrypted && collection.indexes.length === 0);

/** Bytes that are to be written, with an estimate for the row of each document. */
export const writtenBytes = (documents: readonly PreparedDocument[]): number =>
  documents.reduce((sum, { start, end }) => sum + end - start + 64, 0);
