import { notFound } from '@granary/shared/errors';
import { COLLECTION_NOT_FOUND } from '../catalog/collection';
import type { Head } from '../commit/head';
import { linkContent, nextLink } from '../commit/hash-chain';
import {
  documentKey,
  sizeClassOf,
  type DocumentIds,
  type DocumentRead,
  type NewVersion,
  type PlanState,
  type PresentDocument,
  type SizeClass,
  type Write,
  type WriteLink,
} from '../commit/write';
import type { IdempotencyKey } from '../catalog/idempotency';
import { prepareDocumentOf, type PreparedDocument } from '../documents/parser';
import { rulesOf } from '../documents/rules';
import { changedText, changesByCollection, type DocumentChange } from './document-change';
import { toEntry } from './prepare-body';

/** Bytes of a row beside its text, roughly. */
const rowBytes = 64;

/**
 * Changes of documents that commit together, or are refused together with the error of the first that cannot be made: one
 * link for each collection, in the order in which the changes name them. No two are of the same document.
 */
export class ChangeWrite implements Write {
  readonly operation = 'store';
  readonly userAddress = null;
  readonly collections: readonly string[];
  readonly bytes: number;
  readonly sizeClass: SizeClass;
  readonly reads: readonly DocumentRead[];
  private readonly changesByCollection: ReadonlyMap<string, readonly DocumentChange[]>;
  private readonly knownIds: DocumentIds;

  constructor(
    readonly ticketId: string,
    readonly idempotency: IdempotencyKey | undefined,
    changes: readonly DocumentChange[],
  ) {
    this.changesByCollection = changesByCollection(changes);
    this.collections = [...this.changesByCollection.keys()];
    this.bytes = changes.reduce((sum, { body }) => sum + body.length + rowBytes, 0);
    this.sizeClass = sizeClassOf(this.bytes);
    this.reads = changes.map(({ collection, id, condition }) => ({ collection, id, condition }));
    this.knownIds = { set: new Set(changes.map(({ id }) => id)), count: changes.length };
  }

  ids(): DocumentIds {
    return this.knownIds;
  }

  links(head: Head, state: PlanState): WriteLink[] {
    const links: WriteLink[] = [];
    let last = head;
    for (const [collection, changes] of this.changesByCollection) {
      const documents = changes.map((change) => changed(change, state));
      const link = nextLink(last, linkContent(collection, documents.map(toEntry)));
      const versions = changes.map(({ id }) => nextVersion(state.documents.get(documentKey(collection, id))));
      links.push({ collection, link, documents, versions });
      last = link;
    }
    return links;
  }

  pathOf(collection: string, place: number): string {
    const path = this.changesByCollection.get(collection)?.[place]?.path ?? '';
    return path === '' ? '' : `${path}.`;
  }
}

const nextVersion = (latest: PresentDocument | undefined): NewVersion => ({
  version: (latest?.version ?? 0n) + 1n,
  created: latest?.deleted ?? true,
});

/** A changed document, ready to be written. */
function changed(change: DocumentChange, { collections, documents }: PlanState): PreparedDocument {
  const { collection, id, kind, path } = change;
  if (!collections.has(collection) && (kind === 'merge' || kind === 'delete')) {
    throw notFound(COLLECTION_NOT_FOUND, `There is no collection ${collection}`);
  }
  const text = changedText(change, documents.get(documentKey(collection, id)));
  return prepareDocumentOf(id, text, rulesOf(collections.get(collection)), path);
}
