import type { Step } from '@granary/shared/postgres/pipeline';
import { pipeline } from '@granary/shared/postgres/pipeline';
import type { Connection, Pool } from '@granary/shared/postgres/pool';
import { sql, type Sql } from '@granary/shared/postgres/sql';
import { int8Array, textArray } from '@granary/shared/postgres/wire/binary';
import type { CollectionRef } from '../catalog/collection';
import { documentsTable } from '../catalog/table-names';
import type { App } from '../catalog/app';
import { cachedCollections } from './batch-collections';
import type { CommitContext } from './commit-context';
import type { RowsByCollection } from './plan';
import { cipherOf } from '../encryption/document-cipher';
import type { Condition } from '../query/language/condition';
import { never, withTerms } from '../query/language/encrypted-conditions';
import { matchingDocument } from '../query/sql/matching-document';
import {
  documentKey,
  type DocumentRead,
  type PendingWrite,
  type PresentDocument,
  type PresentDocuments,
} from './write';

const none: PresentDocuments = new Map();

/** The reads that a batch depends on, by the state of the collections that they were sent for, with their answers. */
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
  const body = bodyColumn(reads);
  const versions = sql`select id, version, ordinal, deleted, ${body} as body from ${documentsTable(collection)} where id = any(${ids}::text[])`;
  const cipher = cipherOf(collection);
  // A condition that an encrypted field does not support matches nothing here. Its change is refused when it is
  // prepared.
  const stored = (condition: Condition) => (cipher ? withTerms(cipher, condition, () => never) : condition);
  return [
    versions,
    ...conditional(reads).map(({ id, condition }) => matchingDocument(collection, id, stored(condition!))),
  ];
}

/** The texts of the documents that are read for their texts. */
function bodyColumn(reads: readonly DocumentRead[]): Sql {
  if (!reads.some(({ omitsBody }) => omitsBody)) return sql`body`;
  const shownIds = textArray(reads.filter(({ omitsBody }) => !omitsBody).map(({ id }) => id));
  return sql`case when id = any(${shownIds}::text[]) then body else '' end`;
}

/** Reads what a batch depends on, from the cached collections, without a lock. */
export async function readUnlocked(
  pool: Pool,
  collections: ReadonlyMap<string, CollectionRef>,
  batch: readonly PendingWrite[],
): Promise<PresentDocuments> {
  const byCollection = readsOf(collections, batch);
  const connection = await pool.connect();
  let isUsable = false;
  try {
    const answers = await pipeline(connection, [...byCollection].flatMap(stepsOf));
    isUsable = true;
    return answersToDocuments(byCollection, answers);
  } finally {
    connection.release(!isUsable);
  }
}

/** Returns the documents that the writes of a batch assume, from each write those that it reads. */
export function assumedDocuments(batch: readonly PendingWrite[]): PresentDocuments {
  if (!batch.some(({ write }) => write.assumed)) return none;
  const [only, ...others] = batch;
  if (others.length === 0) return only!.write.assumed!;
  const documents = new Map<string, PresentDocument>();
  for (const { write } of batch) {
    for (const { collection, id } of write.reads ?? []) {
      const key = documentKey(collection, id);
      const document = write.assumed?.get(key);
      if (document) documents.set(key, document);
    }
  }
  return documents;
}

/**
 * Statements that fail with an error which `isHeadConflict` recognizes unless the documents that a batch reads are
 * still those that it assumes, or missing as then: purges and erasures remove documents without moving the head.
 */
export function assertAssumed(
  rows: RowsByCollection,
  batch: readonly PendingWrite[],
  documents: PresentDocuments,
): Step[] {
  if (!batch.some(({ write }) => write.reads)) return [];
  const collections = new Map([...rows.keys()].map((collection) => [collection.name, collection]));
  return [...readsOf(collections, batch)].map(([collection, reads]) => {
    const ordinals = reads.map(({ id }) => Number(documents.get(documentKey(collection.name, id))?.ordinal ?? 0n));
    return sql`select 1 / (not exists (
      select from unnest(${textArray(reads.map(({ id }) => id))}::text[], ${int8Array(ordinals)}::int8[]) as a(id, ordinal)
        left join ${documentsTable(collection)} d on d.id = a.id
      where coalesce(d.ordinal, 0) <> a.ordinal))::int`;
  });
}

type Answers = ReadonlyArray<{ rows: ReadonlyArray<ReadonlyArray<string | null>> }>;

function answersToDocuments(
  byCollection: ReadonlyMap<CollectionRef, readonly DocumentRead[]>,
  answers: Answers,
): PresentDocuments {
  const present = new Map<string, PresentDocument>();
  let index = 0;
  for (const [{ name }, reads] of byCollection) {
    for (const [id, version, ordinal, deleted, body] of answers[index++]!.rows) {
      present.set(documentKey(name, id!), {
        version: BigInt(version!),
        ordinal: BigInt(ordinal!),
        deleted: deleted === 't',
        body: Buffer.from(body!),
        matches: true,
      });
    }
    for (const { id } of conditional(reads)) {
      const document = present.get(documentKey(name, id));
      const { rows } = answers[index++]!;
      if (document) document.matches = rows.length > 0;
    }
  }
  return present;
}
