import type { StepAnswer } from '@granary/shared/postgres/pipeline';
import type { CollectionRef } from '../catalog/collection';
import type { PreparedDocument } from '../documents/parser';
import type { BatchPlan, DocumentRow, RowsByCollection } from './plan';
import type { NewVersion } from './write';

/** The collections whose upserts must return what they wrote. */
export const versionedCollections = ({ unversioned }: BatchPlan): ReadonlySet<string> =>
  new Set(unversioned.map(({ collection }) => collection));

/** Sets the versions of links that were planned without them; `upserts` are the answers of their collections. */
export function setVersions(
  { unversioned }: BatchPlan,
  rows: RowsByCollection,
  upserts: ReadonlyMap<CollectionRef, StepAnswer>,
): void {
  if (unversioned.length === 0) return;
  const byCollection = new Map(
    [...rows].map(([collection, written]) => [collection.name, writtenVersions(written, upserts.get(collection))]),
  );
  for (const link of unversioned) {
    const versions = byCollection.get(link.collection)!;
    link.versions = link.documents.map((document) => versions.get(document)!);
  }
}

const firstVersion: NewVersion = { version: 1n, created: true };

/** The versions of documents, given the last of each id that was upserted; the others are new. */
function writtenVersions(
  rows: readonly DocumentRow[],
  upsert: StepAnswer | undefined,
): ReadonlyMap<PreparedDocument, NewVersion> {
  const last = new Map(
    upsert?.rows.map(([, id, version, created]) => [id!, { version: BigInt(version!), created: created === 't' }]),
  );
  const left = new Map<string, bigint>();
  for (const { document } of rows) left.set(document.id, (left.get(document.id) ?? 0n) + 1n);
  const before = new Map<string, PreparedDocument>();
  const versions = new Map<PreparedDocument, NewVersion>();
  for (const { document } of rows) {
    const { id } = document;
    const later = left.get(id)! - 1n;
    left.set(id, later);
    const { version, created } = last.get(id) ?? firstVersion;
    versions.set(document, { version: version - later, created: before.get(id)?.deleted ?? created });
    before.set(id, document);
  }
  return versions;
}
