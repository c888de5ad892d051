import type { Step } from '@granary/shared/postgres/pipeline';
import { pipeline } from '@granary/shared/postgres/pipeline';
import type { Connection } from '@granary/shared/postgres/pool';
import { sql } from '@granary/shared/postgres/sql';
import { textArray } from '@granary/shared/postgres/wire/binary';
import type { CollectionRef } from '../catalog/collection';
import { documentsTable } from '../catalog/table-names';
import type { App } from '../catalog/app';
import { cachedCollections } from './batch-collections';
import type { CommitContext } from './commit-context';
import { matchingDocument } from '../query/sql/matching-document';
import {
  documentKey,
  type DocumentRead,
  type PendingWrite,
  type PresentDocument,
  type PresentDocuments,
} from './write';

const none: PresentDocuments = new Map();

/** What a batch depends on, by the collections as they were when it was read. */
export interface ReadDocuments {
  byCollection: ReadonlyMap<CollectionRef, readonly DocumentRead[]>;
  answers: Answers;
}

/** Statements that are sent behind the one that locks the head. */
export interface Prefetch {
  steps: readonly Step[];
  answered(answers: Answers): ReadDocuments;
}

/**
 * Reads the documents that a batch depends on in the round trip that locks the head, from the collections as they are
 * cached. Undefined where it depends on none, or on a collection that is not cached at the last known revision.
 */
export function prefetchDocuments(
  { collections, heads }: CommitContext,
  app: App,
  batch: readonly PendingWrite[],
): Prefetch | undefined {
  if (!batch.some(({ write }) => write.reads)) return undefined;
  const revision = heads.latest(app.number)?.catalogRevision;
  const cached = revision === undefined ? undefined : cachedCollections(collections, app, revision, batch);
  if (!cached) return undefined;
  const byCollection = readsOf(cached.known, batch);
  return {
    steps: [...byCollection].flatMap(stepsOf),
    answered: (answers) => ({ byCollection, answers }),
  };
}

/**
 * The present versions of the documents that the links of a batch depend on, soft-deleted ones too: one statement for
 * each collection, and one for each condition, in one round trip; none where no write depends on any. What was
 * prefetched is taken if the collections are still the same. The head must be locked.
 */
export async function readPresentDocuments(
  tx: Connection,
  collections: ReadonlyMap<string, CollectionRef>,
  batch: readonly PendingWrite[],
  prefetched: ReadDocuments | undefined,
): Promise<PresentDocuments> {
  const byCollection = readsOf(collections, batch);
  if (byCollection.size === 0) return none;
  if (prefetched && [...byCollection.keys()].every((collection) => prefetched.byCollection.has(collection))) {
    return answersToDocuments(prefetched.byCollection, prefetched.answers);
  }
  return answersToDocuments(byCollection, await pipeline(tx, [...byCollection].flatMap(stepsOf)));
}

function readsOf(
  collections: ReadonlyMap<string, CollectionRef>,
  batch: readonly PendingWrite[],
): ReadonlyMap<CollectionRef, readonly DocumentRead[]> {
  const reads = batch.flatMap(({ write }) => write.reads ?? []);
  const byCollection = new Map<CollectionRef, DocumentRead[]>();
  for (const read of reads) {
    const collection = collections.get(read.collection);
    if (!collection) continue;
    const others = byCollection.get(collection);
    if (others) others.push(read);
    else byCollection.set(collection, [read]);
  }
  return byCollection;
}

const conditional = (reads: readonly DocumentRead[]) => reads.filter(({ condition }) => condition !== undefined);

function stepsOf([collection, reads]: [CollectionRef, readonly DocumentRead[]]): Step[] {
  const ids = textArray(reads.map(({ id }) => id));
  const versions = sql`select id, version, deleted, body from ${documentsTable(collection)} where id = any(${ids}::text[])`;
  return [versions, ...conditional(reads).map(({ id, condition }) => matchingDocument(collection, id, condition!))];
}

type Answers = ReadonlyArray<{ rows: ReadonlyArray<ReadonlyArray<string | null>> }>;

function answersToDocuments(
  byCollection: ReadonlyMap<CollectionRef, readonly DocumentRead[]>,
  answers: Answers,
): PresentDocuments {
  const present = new Map<string, PresentDocument>();
  let at = 0;
  for (const [{ name }, reads] of byCollection) {
    for (const [id, version, deleted, body] of answers[at++]!.rows) {
      const document = { version: BigInt(version!), deleted: deleted === 't', body: Buffer.from(body!), matches: true };
      present.set(documentKey(name, id!), document);
    }
    for (const { id } of conditional(reads)) {
      const document = present.get(documentKey(name, id));
      const { rows } = answers[at++]!;
      if (document) document.matches = rows.length > 0;
    }
  }
  return present;
}
