import type { Step } from '@granary/shared/postgres/pipeline';
import { pipeline } from '@granary/shared/postgres/pipeline';
import type { Connection } from '@granary/shared/postgres/pool';
import { sql } from '@granary/shared/postgres/sql';
import { textArray } from '@granary/shared/postgres/wire/binary';
import type { CollectionRef } from '../catalog/collection';
import { documentsTable } from '../catalog/table-names';
import { matchingDocument } from '../query/sql/matching-document';
import {
  documentKey,
  type DocumentRead,
  type PendingWrite,
  type PresentDocument,
  type PresentDocuments,
} from './write';

const none: PresentDocuments = new Map();

/**
 * The present versions of the documents that the links of a batch depend on, soft-deleted ones too: one statement for
 * each collection, and one for each condition, in one round trip; none where no write depends on any. The head must be
 * locked.
 */
export async function readPresentDocuments(
  tx: Connection,
  collections: ReadonlyMap<string, CollectionRef>,
  batch: readonly PendingWrite[],
): Promise<PresentDocuments> {
  const reads = batch.flatMap(({ write }) => write.reads ?? []);
  const byCollection = new Map<CollectionRef, DocumentRead[]>();
  for (const read of reads) {
    const collection = collections.get(read.collection);
    if (!collection) continue;
    const others = byCollection.get(collection);
    if (others) others.push(read);
    else byCollection.set(collection, [read]);
  }
  if (byCollection.size === 0) return none;
  return answersToDocuments(byCollection, await pipeline(tx, [...byCollection].flatMap(stepsOf)));
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
