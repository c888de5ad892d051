import { ServiceError } from '@granary/shared/errors';
import type { CollectionRef } from '../catalog/collection';
import type { CommitRow } from './commit-log';
import type { Head, LockedHead } from './head';
import type { Committed, Outcomes, PendingWrite, WriteLink } from './write';

/** The collections that the writes of a batch name, at one revision of the catalog. */
export interface BatchCollections {
  known: ReadonlyMap<string, CollectionRef>;
  /** Those of them that the batch's own transaction created. */
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

/** What a batch writes if the head is where the plan expects it. */
export interface BatchPlan {
  /** The head before the batch and after it. */
  from: LockedHead;
  to: LockedHead;
  /** In the order of their heights. */
  commits: readonly PlannedCommit[];
  outcomes: Outcomes;
  /** Writes that were refused, with the reason in `outcomes`. */
  refused: readonly PendingWrite[];
  /** Collections that must be created before the batch can be planned: writes to them have no outcome yet. */
  missing: ReadonlySet<string>;
}

/**
 * Plans the writes of a batch one after the other, each on the head that the one before it leaves. A refused write
 * leaves no link. Pure: no I/O, and the same arguments give the same plan.
 */
export function plan(from: LockedHead, writes: readonly PendingWrite[], collections: BatchCollections): BatchPlan {
  const commits: PlannedCommit[] = [];
  const outcomes: Outcomes = new Map();
  const refused: PendingWrite[] = [];
  const missing = new Set<string>();
  const announced = new Set<string>();
  let head: Head = from;
  for (const pending of writes) {
    const { write } = pending;
    const target = collections.known.get(write.collection);
    const links = linksOf(pending, head, collections);
    if (links instanceof ServiceError) {
      outcomes.set(pending, links);
      refused.push(pending);
    } else if (!target) {
      missing.add(write.collection);
    } else {
      const namespace = target.namespace ?? `${target.appId}::${target.name}`;
      for (const [at, { link, documents }] of links.entries()) {
        commits.push({
          link,
          ticketId: at === 0 ? write.ticketId : null,
          operation: write.operation,
          collection: target.name,
          namespace,
          userAddress: write.userAddress,
          target,
          documents,
        });
      }
      head = links.at(-1)!.link;
      const committed = toCommitted(commits.at(-links.length)!, write.ticketId);
      const isCreator = collections.created.has(target.name) && !announced.has(target.name);
      if (isCreator) announced.add(target.name);
      outcomes.set(pending, isCreator ? { ...committed, createdWithAccess: target.readAccess } : committed);
    }
  }
  const { height, ordinal, hash } = head;
  const to = { height, ordinal, hash, catalogRevision: from.catalogRevision };
  return { from, to, commits, outcomes, refused, missing };
}

/** The links of a write, or why it is refused. */
function linksOf(
  { write }: PendingWrite,
  head: Head,
  { known, refused }: BatchCollections,
): WriteLink[] | ServiceError {
  try {
    const links = write.links(known.get(write.collection), head);
    return refused.get(write.collection) ?? links;
  } catch (error) {
    if (error instanceof ServiceError) return error;
    throw error;
  }
}

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
