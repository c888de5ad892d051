import { ServiceError } from '@granary/shared/errors';
import type { Connection } from '@granary/shared/postgres/pool';
import { findCollections, type CollectionRef, type ReadAccess } from '../catalog/collection';
import { addCollection } from '../collections/collections';
import { findCommitted, type Committed, type CommitRow, type Link } from './commit-log';
import type { CatalogCache } from '../catalog/cache';
import type { Head } from './head';
import { findAnswer } from './idempotency';
import type { PreparedDocument } from '../documents/parser';
import type { PlacedDocument } from './document-rows';
import type { Waiting, Write } from './write-queue';

export interface App {
  number: bigint;
  appId: string;
}

/** What became of the writes of a batch that were not simply refused. */
export type Outcomes = Map<Waiting, Committed | ServiceError>;

/** The documents of a transaction by their collection. */
export type Placed = Map<CollectionRef, PlacedDocument[]>;

/** The links that the writes of a batch make after a head, and where that leaves it. */
export interface BatchLinks {
  head: Head;
  commits: readonly CommitRow[];
  /** The writes that were refused; why is in the outcomes. */
  refused: readonly Waiting[];
}

/**
 * Builds the links of writes, one after the other, and fills in their outcomes, and their documents where `placed` is
 * given. `make` makes a collection that `handles` lacks. A refusal is the outcome of its write; any other error is thrown.
 */
export async function buildLinks(
  app: App,
  from: Head,
  writes: readonly Waiting[],
  handles: Map<string, CollectionRef>,
  { outcomes, placed }: { outcomes: Outcomes; placed: Placed | undefined },
  make: (name: string) => Promise<CollectionRef>,
): Promise<BatchLinks> {
  const refused: Waiting[] = [];
  const commits: CommitRow[] = [];
  let head = from;
  for (const one of writes) {
    const { write } = one;
    try {
      const built = write.build(handles.get(write.collection), head);
      const known = handles.get(write.collection);
      const handle = known ?? (await make(write.collection));
      handles.set(write.collection, handle);
      head = built.at(-1)!.link;
      const namespace = handle.namespace ?? `${app.appId}::${handle.name}`;
      for (const [at, { link, documents: ofLink }] of built.entries()) {
        const { operation, userAddress } = write;
        const ticketId = at === 0 ? write.ticketId : null;
        commits.push({ link, ticketId, operation, collection: handle.name, namespace, userAddress });
        if (placed) addPlaced(placed, handle, Number(link.ordinal), ofLink);
      }
      const committed = toCommitted(write, handle.number, namespace, built[0]!.link);
      outcomes.set(one, known ? committed : { ...committed, createdWithAccess: handle.readAccess });
    } catch (error) {
      // An error of Postgres has ended the transaction; a refusal before any statement has not.
      if (!(error instanceof ServiceError)) throw error;
      outcomes.set(one, error);
      refused.push(one);
    }
  }
  return { head, commits, refused };
}

function addPlaced(
  placed: Placed,
  handle: CollectionRef,
  ordinal: number,
  documents: readonly PreparedDocument[],
): void {
  let ofCollection = placed.get(handle);
  if (!ofCollection) placed.set(handle, (ofCollection = []));
  for (const [place, document] of documents.entries()) ofCollection.push({ document, ordinal, place });
}

function toCommitted(write: Write, collectionNumber: bigint, namespace: string, link: Link): Committed {
  return {
    ticketId: write.ticketId,
    operation: write.operation,
    collection: write.collection,
    collectionNumber,
    namespace,
    height: link.height,
    hash: link.hash,
    ids: link.ids,
  };
}

/** Gives writes that have been committed before their outcomes. The head must be locked. */
export async function findDone(
  tx: Connection,
  app: App,
  writes: readonly Waiting[],
  outcomes: Outcomes,
): Promise<void> {
  const tickets = writes.map(({ write }) => write.ticketId);
  const done = await findCommitted(tx, app.number, tickets);
  for (const one of writes) {
    const committed = done.get(one.write.ticketId);
    if (committed) outcomes.set(one, committed);
  }
}

/** What is kept of a commit for its Idempotency-Key. */
export const keptAnswer = ({ ticketId, createdWithAccess }: Committed): string =>
  createdWithAccess ? `${ticketId} ${createdWithAccess}` : ticketId;

/** Under the lock of the head nobody else can keep an answer for this app, so looking is enough. */
export async function answerRepeated(
  tx: Connection,
  app: App,
  batch: readonly Waiting[],
  outcomes: Outcomes,
): Promise<void> {
  for (const one of batch) {
    const key = one.write.idempotency;
    if (!key || outcomes.has(one)) continue;
    try {
      const answer = await findAnswer(tx, key);
      if (answer === undefined) continue;
      const [ticketId, createdWithAccess] = answer.split(' ') as [string, ReadAccess | undefined];
      const committed = (await findCommitted(tx, app.number, [ticketId])).get(ticketId);
      if (committed) outcomes.set(one, createdWithAccess ? { ...committed, createdWithAccess } : committed);
    } catch (error) {
      if (!(error instanceof ServiceError)) throw error;
      outcomes.set(one, error);
    }
  }
}

/** The handles that writes need and that are known as the catalog is at that revision; and the names of the others. */
export function knownHandles(
  known: CatalogCache,
  app: App,
  revision: bigint,
  writes: readonly Waiting[],
): { handles: Map<string, CollectionRef>; unknown: string[] } {
  const handles = new Map<string, CollectionRef>();
  const unknown: string[] = [];
  for (const name of new Set(writes.map(({ write }) => write.collection))) {
    const handle = known.known(app.number, name);
    if (handle?.revision === revision) handles.set(name, handle);
    else unknown.push(name);
  }
  return { handles, unknown };
}

/** The handles that writes need, as the catalog is at the locked revision. One statement for all that are not known. */
export async function currentHandles(
  tx: Connection,
  known: CatalogCache,
  app: App,
  revision: bigint,
  writes: readonly Waiting[],
): Promise<Map<string, CollectionRef>> {
  const { handles, unknown } = knownHandles(known, app, revision, writes);
  if (unknown.length === 0) return handles;
  for (const name of unknown) known.forget(app.number, name);
  for (const handle of await findCollections(tx, app, unknown)) {
    handles.set(handle.name, handle);
    known.keep(handle);
  }
  return handles;
}

/** Makes a collection that a write is the first to name. */
export const makeCollection = (tx: Connection, app: App, readAccess: ReadAccess, at: Date) => (name: string) =>
  addCollection(tx, app, { name, readAccess }, at);
