import { notFound, ServiceError, type ErrorDetails, type StatusName } from '@granary/shared/errors';
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
import type { IdempotencyKey } from '@granary/shared/idempotency/key';
import { prepareDocumentOf, type PreparedDocument } from '../documents/parser';
import { rulesOf } from '../documents/rules';
import { changedText, changesByCollection, dependsOnPresent, type DocumentChange } from './document-change';
import { toEntry } from './prepare-body';

/** Bytes of a row beside its text, roughly. */
const rowBytes = 64;

/**
 * - `together`: the changes commit together, or are refused together with the error of the first that cannot be made.
 * - `separately`: a change that cannot be made is refused alone, and the others commit together.
 */
export type Refusing = 'together' | 'separately';

/** Changes that were refused, and why. */
export type Refusals = ReadonlyMap<DocumentChange, ServiceError>;

/**
 * Changes of documents in one transaction: one link for each collection, in the order in which the changes name them. No
 * two are of the same document.
 */
export class ChangeWrite implements Write {
  readonly operation = 'store';
  readonly userAddress = null;
  readonly collections: readonly string[];
  readonly bytes: number;
  readonly sizeClass: SizeClass;
  readonly needsVersions = true;
  readonly reads?: readonly DocumentRead[];
  /** The refused changes as it was planned last: those of the commit, once that is committed. */
  refusals: Refusals = new Map();
  private readonly knownIds: DocumentIds;

  constructor(
    readonly ticketId: string,
    readonly idempotency: IdempotencyKey | undefined,
    readonly changes: readonly DocumentChange[],
    private readonly refusing: Refusing = 'together',
  ) {
    this.collections = [...changesByCollection(changes).keys()];
    this.bytes = changes.reduce((sum, { body }) => sum + body.length + rowBytes, 0);
    this.sizeClass = sizeClassOf(this.bytes);
    if (changes.some(dependsOnPresent)) {
      this.reads = changes.map(({ collection, id, condition }) => ({ collection, id, condition }));
    }
    this.knownIds = { set: new Set(changes.map(({ id }) => id)), count: changes.length };
  }

  ids(): DocumentIds {
    return this.knownIds;
  }

  links(head: Head, state: PlanState): WriteLink[] {
    const documents = this.changed(state);
    const links: WriteLink[] = [];
    let last = head;
    for (const [collection, changes] of changesByCollection([...documents.keys()])) {
      const ofLink = changes.map((change) => documents.get(change)!);
      const link = nextLink(last, linkContent(collection, ofLink.map(toEntry)));
      const versionOf = ({ id }: DocumentChange) => nextVersion(state.documents.get(documentKey(collection, id)));
      links.push({ collection, link, documents: ofLink, ...(this.reads && { versions: changes.map(versionOf) }) });
      last = link;
    }
    return links;
  }

  /** The documents that the accepted changes make. Throws the first refusal where no change is accepted. */
  private changed(state: PlanState): ReadonlyMap<DocumentChange, PreparedDocument> {
    const documents = new Map<DocumentChange, PreparedDocument>();
    const refusals = new Map<DocumentChange, ServiceError>();
    this.refusals = refusals;
    for (const change of this.changes) {
      try {
        documents.set(change, changed(change, state));
      } catch (error) {
        if (!(error instanceof ServiceError) || this.refusing === 'together') throw error;
        refusals.set(change, error);
      }
    }
    const [first] = refusals.values();
    if (documents.size === 0 && first) throw first;
    return documents;
  }

  /** Whether every change was refused. */
  get isRefused(): boolean {
    return this.refusals.size === this.changes.length;
  }

  pathOf(collection: string, place: number): string {
    const accepted = this.changes.filter((change) => change.collection === collection && !this.refusals.has(change));
    const path = accepted[place]?.path ?? '';
    return path === '' ? '' : `${path}.`;
  }

  keptNote(): string | undefined {
    if (this.refusals.size === 0) return undefined;
    const refused = this.changes.flatMap((change, at) => {
      const refusal = this.refusals.get(change);
      return refusal ? [[at, toKept(refusal)] as const] : [];
    });
    return JSON.stringify(refused);
  }

  /** The refusals that `keptNote` of the same changes returned. */
  refusalsOf(note: string | undefined): Refusals {
    const refused = note === undefined ? [] : (JSON.parse(note) as Array<[number, KeptRefusal]>);
    return new Map(refused.map(([at, refusal]) => [this.changes[at]!, toRefusal(refusal)]));
  }
}

interface KeptRefusal {
  code: StatusName;
  reason: string;
  message: string;
  details: ErrorDetails;
}

const toKept = ({ code, reason, message, details }: ServiceError): KeptRefusal => ({ code, reason, message, details });

const toRefusal = ({ code, reason, message, details }: KeptRefusal): ServiceError =>
  new ServiceError(code, reason, message, { details });

const nextVersion = (latest: PresentDocument | undefined): NewVersion => ({
  version: (latest?.version ?? 0n) + 1n,
  created: latest?.deleted ?? true,
});

/** A changed document, ready to be written. */
function changed(change: DocumentChange, { collections, documents }: PlanState): PreparedDocument {
  const { collection, id, kind, path, refusal } = change;
  if (refusal) throw refusal;
  if (!collections.has(collection) && (kind === 'merge' || kind === 'delete')) {
    throw notFound(COLLECTION_NOT_FOUND, `There is no collection ${collection}`);
  }
  const text = changedText(change, documents.get(documentKey(collection, id)));
  return prepareDocumentOf(id, text, rulesOf(collections.get(collection)), path);
}
