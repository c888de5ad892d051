import { ServiceError } from '@granary/shared/errors';
import type { CollectionRef } from '../catalog/collection';
import type { CommitRow } from '../chain/commit-log';
import type { Head } from '../chain/hash-chain';
import type { LockedHead } from './head';
import type { Committed, Outcomes, PendingWrite, PresentDocuments, Write, WriteLink } from './write';

/** The collections that the writes of a batch name, at one revision of the catalog. */
export interface BatchCollections {
  known: ReadonlyMap<string, CollectionRef>;
  /** The names of the collections that the batch's own transaction created. */
  created: ReadonlySet<string>;
  /** Collections that its transaction could not create, and why. */
  refused: ReadonlyMap<string, ServiceError>;
}

/** A link of the plan, as it is logged, with its documents. */
export interface PlannedCommit extends CommitRow {
  target: CollectionRef;
  documents: WriteLink['documents'];
}

/** A document with its place among all writes of the app: the ordinal of its commit, and its place in that. */
export interface DocumentRow {
  document: WriteLink['documents'][number];
  ordinal: number;
  place: number;
}

/** The rows that a batch writes, by their collection. */
export type RowsByCollection = ReadonlyMap<CollectionRef, readonly DocumentRow[]>;

/** The plan of a batch: what it writes if the head is where the plan expects it. */
export interface BatchPlan {
  /** The head before the batch and after it. */
  from: LockedHead;
  to: LockedHead;
  /** The commits in the order of their heights. */
  commits: readonly PlannedCommit[];
  outcomes: Outcomes;
  /** Links that need versions and do not know them before they are written. */
  unversioned: readonly WriteLink[];
  /** Writes that were refused, with the reason in `outcomes`. */
  refused: readonly PendingWrite[];
  /** Collections that must be created before the batch can be planned: writes to them have no outcome yet. */
  missing: ReadonlySet<string>;
}

/**
 * Plans the writes of a batch one after the other, each on the head that the one before it leaves. A refused write
 * leaves no link. Pure: no I/O, and the same arguments give the same plan.
 */
export function plan(
  from: LockedHead,
  writes: readonly PendingWrite[],
  collections: BatchCollections,
  documents: PresentDocuments = noDocuments,
): BatchPlan {
  const commits: PlannedCommit[] = [];
  const outcomes: Outcomes = new Map();
  const unversioned: WriteLink[] = [];
  const refused: PendingWrite[] = [];
  const missing = new Set<string>();
  const announced = new Set<string>();
  let head: Head = from;
  for (const pending of writes) {
    const { write } = pending;
    const links = linksOf(pending, head, collections, documents);
    if (links instanceof ServiceError) {
      outcomes.set(pending, links);
      refused.push(pending);
      continue;
    }
    const unknown = links.filter(({ collection }) => !collections.known.has(collection));
    if (unknown.length > 0) {
      for (const { collection } of unknown) missing.add(collection);
      continue;
    }
    const planned = links.map((link, index) => toCommit(write, link, index, collections.known.get(link.collection)!));
    commits.push(...planned);
    head = links.at(-1)!.link;
    const [first] = planned as [PlannedCommit];
    const committed = { ...toCommitted(first, write.ticketId), ...(write.needsVersions && { links }) };
    if (write.needsVersions) unversioned.push(...links.filter(({ versions }) => !versions));
    const { name, readAccess } = first.target;
    const isCreator = collections.created.has(name) && !announced.has(name);
    if (isCreator) announced.add(name);
    outcomes.set(pending, isCreator ? { ...committed, createdWithAccess: readAccess } : committed);
  }
  const { height, ordinal, hash } = head;
  const to = { height, ordinal, hash, catalogRevision: from.catalogRevision };
  return { from, to, commits, outcomes, unversioned, refused, missing };
}

/** The links of a write, or why it is refused. */
function linksOf(
  { write }: PendingWrite,
  head: Head,
  { known: collectionsByName, refused }: BatchCollections,
  documents: PresentDocuments,
): WriteLink[] | ServiceError {
  try {
    const links = write.links(head, { collections: collectionsByName, documents });
    for (const { collection } of links) {
      const refusal = refused.get(collection);
      if (refusal) return refusal;
    }
    return links;
  } catch (error) {
    if (error instanceof ServiceError) return error;
    throw error;
  }
}

const noDocuments: PresentDocuments = new Map();

/** The link of a write at a place among its links; the first carries its ticket. */
const toCommit = (
  write: Write,
  { link, documents }: WriteLink,
  index: number,
  target: CollectionRef,
): PlannedCommit => ({
  link,
  ticketId: index === 0 ? write.ticketId : null,
  operation: write.operation,
  collection: target.name,
  namespace: target.namespace ?? `${target.appId}::${target.name}`,
  userAddress: write.userAddress,
  target,
  documents,
});

const toCommitted = ({ link, operation, target, namespace }: PlannedCommit, ticketId: string): Committed => ({
  ticketId,
  operation,
  collection: target.name,
  collectionNumber: target.number,
  namespace,
  height: link.height,
  hash: link.hash,
  ids: link.ids,
});

/** The rows that a plan writes, by their collection. They depend on its ordinals and the catalog, not on its hashes. */
export function rowsOf({ commits }: BatchPlan): RowsByCollection {
  const byCollection = new Map<CollectionRef, DocumentRow[]>();
  for (const { target, link, documents } of commits) {
    let rows = byCollection.get(target);
    if (!rows) byCollection.set(target, (rows = []));
    const ordinal = Number(link.ordinal);
    for (const [place, document] of documents.entries()) rows.push({ document, ordinal, place });
  }
  return byCollection;
}
