import { ServiceError } from '@granary/shared/errors';
import type { CollectionRef, ReadAccess } from '../catalog/collection';
import type { Task } from '@granary/shared/concurrency/time-slicing';
import type { PreparedDocument } from '../documents/parser';
import type { Commit } from '../chain/commit-log';
import type { Head, Link } from '../chain/hash-chain';
import type { IdempotencyKey } from '@granary/shared/idempotency/key';
import type { Step } from '@granary/shared/postgres/pipeline';
import type { Connection } from '@granary/shared/postgres/pool';
import type { Condition } from '../query/language/condition';

/** A larger write is a bulk: its body is parsed in time slices, and it is a batch of its own. */
const smallBytesMax = 128 * 1024;
/** A batch of small writes closes at this size; a bulk beyond it is large, and its statements may take longer. */
export const batchBytesMax = 1024 * 1024;

/** Decides how a write is parsed, batched and timed out. */
export type SizeClass = 'small' | 'bulk' | 'largeBulk';

export function sizeClassOf(bytes: number): SizeClass {
  if (bytes <= smallBytesMax) return 'small';
  return bytes <= batchBytesMax ? 'bulk' : 'largeBulk';
}

/** One link that a write adds to the chain, with the documents that belong to it. */
export interface WriteLink {
  collection: string;
  link: Link;
  documents: readonly PreparedDocument[];
  /**
   * The new version of each document. A write that does not know it but asks for it gets it once they are written.
   */
  versions?: readonly NewVersion[];
}

export interface NewVersion {
  version: bigint;
  /** Whether there was no such document before, or a deleted one. */
  created: boolean;
}

/** A document whose present version decides what a write does. */
export interface DocumentRead {
  collection: string;
  id: string;
  /** The condition on the present version whose result is `PresentDocument.matches`. */
  condition: Condition | undefined;
  /** Whether the text of the document is not needed, and left empty. */
  omitsBody?: true;
}

/** The latest version of a document, under the lock of the head. */
export interface PresentDocument {
  version: bigint;
  /**
   * The ordinal of the commit that made the version. No later version of the same id has it, not even after an erasure.
   */
  ordinal: bigint;
  deleted: boolean;
  body: Buffer;
  /** Whether the condition of its `DocumentRead` holds; true without one. */
  matches: boolean;
}

/** The present documents by `documentKey`; a document that does not exist has no entry. */
export type PresentDocuments = ReadonlyMap<string, PresentDocument>;

/** No name holds a slash. */
export const documentKey = (collection: string, id: string): string => `${collection}/${id}`;

/** Returns whether a document of the collection is present, by its id. */
export const isPresentIn =
  (documents: PresentDocuments, { name }: CollectionRef) =>
  (id: string): boolean =>
    documents.size > 0 && documents.has(documentKey(name, id));

/** The state that links are planned on besides the head. */
export interface PlanState {
  /** The collections as they are now; a collection that is to be created has no entry. */
  collections: ReadonlyMap<string, CollectionRef>;
  documents: PresentDocuments;
}

export interface DocumentIds {
  set: ReadonlySet<string>;
  /** Documents, of which two may have the same id. */
  count: number;
}

/** One call that changes documents: it commits whole or not at all, whatever shares its batch. */
export interface Write {
  readonly ticketId: string;
  readonly operation: 'store' | 'upload';
  /** The collections that its links are in; a write to several has no preload. */
  readonly collections: readonly string[];
  readonly userAddress: string | null;
  readonly idempotency: IdempotencyKey | undefined;
  /** Whether its price is held, so that it may be closed before it commits. */
  readonly isHeld?: boolean;
  /** Size of the rows to be written, or of the request if that is larger. */
  readonly bytes: number;
  readonly sizeClass: SizeClass;
  /** The documents that its links depend on: they are read under the lock, in a round trip of their own. */
  readonly reads?: readonly DocumentRead[];
  /**
   * The documents of `reads` as they were before the write joined the queue, where its links may be planned on them.
   * The commit asserts under the lock that they have not changed.
   */
  readonly assumed?: PresentDocuments | undefined;
  /** Whether its links, as they were planned last, leave out what was refused: that is decided under the lock only. */
  readonly isPartial?: boolean;
  /** The change of other rows that is committed with it, such as the offset of an import. */
  readonly companion?: CompanionChange;
  /** Whether its caller needs the versions of its documents. */
  readonly needsVersions?: boolean;
  /** The ids of its documents; undefined while they are not known. */
  ids(): DocumentIds | undefined;
  /**
   * Its links after `head`, one at least. Has no other effect: it is called again when a batch is planned again. Throws
   * a ServiceError to refuse this write alone.
   */
  links(head: Head, state: PlanState): WriteLink[];
  /** Prepares its links on documents that were read before it joins the queue, and sets `assumed` where it can. */
  assume?(state: PlanState): Task<void>;
  /**
   * The path that error messages have before the fields of a document of its links; by default its place in a `/store`
   * body.
   */
  pathOf?(collection: string, place: number): string;
  /** Returns the note to keep under its Idempotency-Key beside its ticket, once the write has been planned. */
  keptNote?(): string | undefined;
}

/** A change of other rows that is committed with a write, or not at all. */
export interface CompanionChange {
  /** The rows that it changes: no two writes of a batch may change the same, for each is checked on what is there. */
  subject: string;
  /** Why the write must not be committed any more, undefined where it may. Called under the lock of the head. */
  refusal(tx: Connection): Promise<ServiceError | undefined>;
  /** The statements of the change, to be sent with COMMIT, once the write has been planned. */
  steps(committed: Committed): readonly Step[];
}

/** A commit as its caller gets it: of an upload's two links this is the first, its document is the second. */
export interface Committed extends Commit {
  /** The read access of a collection that this write created. */
  createdWithAccess?: ReadAccess;
  /** The note that was kept with it under an Idempotency-Key, for a commit that was found by that key. */
  keptNote?: string;
  /** Its links where the write needs versions: not of a commit that was looked up. */
  links?: readonly WriteLink[];
}

/** A write in the queue, with the promise of its caller. */
export interface PendingWrite {
  write: Write;
  resolve: (committed: Committed) => void;
  reject: (error: unknown) => void;
}

/** The result of each write of a batch: its commit, or why it was refused. */
export type Outcomes = Map<PendingWrite, Committed | ServiceError>;

/** The results of a committed batch. */
export interface BatchResult {
  outcomes: Outcomes;
  /** Numbers of the collections that it changed. */
  changed: readonly bigint[];
}

/** Whether only the lock of the head makes definite that a write has no outcome yet, and may be committed. */
export const isDecidedUnderLock = ({
  idempotency,
  isHeld,
  companion,
}: Pick<Write, 'idempotency' | 'isHeld' | 'companion'>): boolean =>
  idempotency !== undefined || isHeld === true || companion !== undefined;

/** Whether two writes have a document in common, or may have. */
export function conflicts(one: Write, other: Write): boolean {
  if (!one.collections.some((name) => other.collections.includes(name))) return false;
  const [fewer, more] = [one.ids(), other.ids()].sort((a, b) => (a?.set.size ?? 0) - (b?.set.size ?? 0));
  if (!fewer || !more) return true;
  for (const id of fewer.set) if (more.set.has(id)) return true;
  return false;
}

/** Answers the writes of a committed batch. */
export function settleBatch(batch: readonly PendingWrite[], { outcomes }: BatchResult): void {
  for (const pending of batch) {
    const outcome = outcomes.get(pending);
    if (outcome instanceof ServiceError) pending.reject(outcome);
    else pending.resolve(outcome!);
  }
}
