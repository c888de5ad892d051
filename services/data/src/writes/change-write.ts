import { notFound, ServiceError, type ErrorDetails, type StatusName } from '@granary/shared/errors';
import { COLLECTION_NOT_FOUND, type CollectionRef } from '../catalog/collection';
import { linkContent, nextLink, type Head } from '../chain/hash-chain';
import {
  batchBytesMax,
  documentKey,
  sizeClassOf,
  type DocumentIds,
  type DocumentRead,
  type NewVersion,
  type PlanState,
  type PresentDocument,
  type PresentDocuments,
  type SizeClass,
  type Write,
  type WriteLink,
} from '../commit/write';
import { runToCompletion, type Task } from '@granary/shared/concurrency/time-slicing';
import type { IdempotencyKey } from '@granary/shared/idempotency/key';
import { documentsRelation, presentDocuments } from '../query/plan/relation';
import { storedFilter } from '../query/execute/encrypted-read';
import { prepareDocumentOf, type PreparedDocument } from '../documents/parser';
import { rulesOf } from '../documents/rules';
import { OrderedKeys } from '../values/ordered-key';
import { changedText, changesByCollection, dependsOnPresent, type DocumentChange } from './document-change';
import { requirePaid } from './paid-write';
import { hasSameRules } from './prepare-body';

/** Bytes of a row beside its text, and of its keys, roughly. */
const rowBytes = 64;
const keyBytes = 64;

/**
 * - `together`: the changes commit together, or are refused together with the error of the first that cannot be made.
 * - `separately`: a change that cannot be made is refused alone, and the others commit together.
 */
export type Refusing = 'together' | 'separately';

/** The payment and the rights of the caller of changes. */
export interface ChangeTerms {
  /** Whether the price of the changes is paid, or the caller need not pay. */
  isPaid: boolean;
  /** Whether the price of the changes is held. */
  isHeld?: boolean;
  mayReadPrivate: boolean;
}

/** Changes that were refused, and why. */
export type Refusals = ReadonlyMap<DocumentChange, ServiceError>;

/**
 * Changes of documents in one transaction: one link for each collection, in the order in which the changes name them.
 * No two are of the same document.
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
  assumed?: PresentDocuments;
  private readonly knownIds: DocumentIds;
  private readonly prepared = new Map<DocumentChange, PreparedChange>();

  constructor(
    readonly ticketId: string,
    readonly idempotency: IdempotencyKey | undefined,
    readonly changes: readonly DocumentChange[],
    private readonly terms: ChangeTerms,
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

  get isHeld(): boolean {
    return this.terms.isHeld === true;
  }

  ids(): DocumentIds {
    return this.knownIds;
  }

  /** Prepares the changes before the write is submitted. Decides nothing: under the lock the state may be another. */
  prepare(state: PlanState): void {
    runToCompletion(this.prepareSteps(state));
  }

  *assume(state: PlanState): Task<void> {
    if (yield* this.prepareSteps(state)) this.assumed = state.documents;
    else this.prepared.clear();
  }

  /** Prepares until a change is refused or too much text is held; returns whether all are prepared. */
  private *prepareSteps(state: PlanState): Task<boolean> {
    let bytes = 0;
    // One buffer for the keys of all: a buffer for each would be most of what the garbage collector has to copy.
    const keys = this.changes.length > 1 ? new OrderedKeys(keyBytes * this.changes.length) : undefined;
    for (const change of this.changes) {
      try {
        const prepared = prepareChange(change, state, this.terms, keys);
        bytes += prepared.document.end - prepared.document.start;
        if (bytes > Math.max(batchBytesMax, this.bytes)) return false;
        this.prepared.set(change, prepared);
        // Read again in the rare case that it is merged again.
        change.patch = undefined;
      } catch (error) {
        if (!(error instanceof ServiceError)) throw error;
        return false;
      }
      yield;
    }
    return true;
  }

  links(head: Head, state: PlanState): WriteLink[] {
    const documents = this.changed(state);
    const links: WriteLink[] = [];
    let last = head;
    for (const [collection, changes] of changesByCollection([...documents.keys()])) {
      const ofLink = changes.map((change) => documents.get(change)!);
      const link = nextLink(last, linkContent(collection, ofLink));
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
        const prepared = this.prepared.get(change);
        const { document } =
          prepared && isStill(prepared, change, state) ? prepared : prepareChange(change, state, this.terms);
        if (change.kind !== 'delete')
          requirePaid(state.collections.get(change.collection), this.terms.isPaid, [document]);
        documents.set(change, document);
      } catch (error) {
        if (!(error instanceof ServiceError) || this.refusing === 'together') throw error;
        refusals.set(change, error);
      }
    }
    const [first] = refusals.values();
    if (documents.size === 0 && first) throw first;
    return documents;
  }

  get isPartial(): boolean {
    return this.refusals.size > 0;
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
    const refused = this.changes.flatMap((change, index) => {
      const refusal = this.refusals.get(change);
      return refusal ? [[index, toKept(refusal)] as const] : [];
    });
    return JSON.stringify(refused);
  }

  /** The refusals that `keptNote` of the same changes returned. */
  refusalsOf(note: string | undefined): Refusals {
    const refused = note === undefined ? [] : (JSON.parse(note) as Array<[number, KeptRefusal]>);
    return new Map(refused.map(([at, refusal]) => [this.changes[at]!, toRefusal(refusal)]));
  }
}

/** A ServiceError as JSON. */
export interface KeptRefusal {
  code: StatusName;
  reason: string;
  message: string;
  details: ErrorDetails;
}

export const toKept = ({ code, reason, message, details }: ServiceError): KeptRefusal => ({
  code,
  reason,
  message,
  details,
});

const toRefusal = ({ code, reason, message, details }: KeptRefusal): ServiceError =>
  new ServiceError(code, reason, message, { details });

const nextVersion = (latest: PresentDocument | undefined): NewVersion => ({
  version: (latest?.version ?? 0n) + 1n,
  created: latest?.deleted ?? true,
});

/** A changed document, ready to be written, and the state that it was made of. */
interface PreparedChange {
  document: PreparedDocument;
  collection: CollectionRef | undefined;
  present: bigint | undefined;
}

function prepareChange(
  change: DocumentChange,
  { collections, documents }: PlanState,
  { mayReadPrivate }: ChangeTerms,
  keys?: OrderedKeys,
): PreparedChange {
  const { kind, id, path, refusal, condition } = change;
  if (refusal) throw refusal;
  const collection = collections.get(change.collection);
  // A change that is refused by its condition says whether that holds.
  if (condition && collection) storedFilter(documentsRelation(collection, presentDocuments), condition, mayReadPrivate);
  if (!collection && (kind === 'merge' || kind === 'delete')) {
    throw notFound(COLLECTION_NOT_FOUND, `There is no collection ${change.collection}`);
  }
  const present = documents.get(documentKey(change.collection, id));
  const text = changedText(change, present);
  const document = prepareDocumentOf(id, text, rulesOf(collection), { path, keys, patch: change.patch });
  return { document, collection, present: present?.ordinal };
}

/** Whether a change makes the same document of a state. */
const isStill = (
  { collection, present }: PreparedChange,
  change: DocumentChange,
  { collections, documents }: PlanState,
): boolean =>
  hasSameRules(collection, collections.get(change.collection)) &&
  present === documents.get(documentKey(change.collection, change.id))?.ordinal;
