import type { Queryable } from '@granary/shared/postgres/pool';
import type { App } from '../catalog/app';
import { findCollections, type CollectionRef } from '../catalog/collection';
import { hashBytes } from '../chain/commit-log';
import { readTexts, readTextSizes, type CommitRecord, type VersionPlace } from '../chain/commit-pages';

/** One entry of a commit: the id that it stored at a place, with the hash and the text. */
export interface CommitEntry {
  commit: CommitRecord;
  place: number;
  id: string;
  /** The hash in hex; null where it was not kept. */
  sha256: string | null;
  /** Null where it is not stored any more, or is not a document. */
  text: string | null;
}

/** Bytes of the texts of a page; a single text may be larger. */
const textBytesMax = 4 * 1024 * 1024;

export const entriesOf = (commit: CommitRecord): CommitEntry[] =>
  commit.ids.map((id, place) => {
    const sha256 = commit.hashes?.toString('hex', place * hashBytes, (place + 1) * hashBytes) ?? null;
    return { commit, place, id, sha256, text: null };
  });

const keyOf = ({ ordinal, place }: VersionPlace): string => `${ordinal}/${place}`;
const keyOfEntry = ({ commit: { ordinal }, place }: CommitEntry): string => keyOf({ ordinal, place });

/** Entries with their texts, as many of the first as fit into a page, one at least. */
export async function addTexts(db: Queryable, app: App, entries: readonly CommitEntry[]): Promise<CommitEntry[]> {
  const collections = await collectionsOf(db, app, entries);
  const sizes = new Map<string, number>();
  for (const [collection, collectionEntries] of byCollection(entries, collections)) {
    for (const size of await readTextSizes(db, collection, idsOf(collectionEntries), ordinalsOf(collectionEntries))) {
      sizes.set(keyOf(size), size.bytes);
    }
  }
  const fitting = entries.slice(0, countFitting(entries, sizes));
  const texts = new Map<string, string>();
  for (const [collection, collectionEntries] of byCollection(fitting, collections)) {
    const stored = collectionEntries.filter((entry) => sizes.has(keyOfEntry(entry)));
    if (stored.length === 0) continue;
    for (const version of await readTexts(db, collection, idsOf(stored), ordinalsOf(stored))) {
      texts.set(keyOf(version), version.text);
    }
  }
  return fitting.map((entry) => ({ ...entry, text: texts.get(keyOfEntry(entry)) ?? null }));
}

function countFitting(entries: readonly CommitEntry[], sizes: ReadonlyMap<string, number>): number {
  let bytes = 0;
  const beyond = entries.findIndex((entry) => (bytes += sizes.get(keyOfEntry(entry)) ?? 0) > textBytesMax);
  return beyond === -1 ? entries.length : Math.max(1, beyond);
}

/** The collections of entries by their numbers, of those that are not deleted. */
async function collectionsOf(
  db: Queryable,
  app: App,
  entries: readonly CommitEntry[],
): Promise<ReadonlyMap<bigint, CollectionRef>> {
  const names = [...new Set(entries.map(({ commit }) => commit.collection))];
  const collections = await findCollections(db, app, names);
  return new Map(collections.map((collection) => [collection.number, collection]));
}

/** The entries that may have a text. */
function byCollection(
  entries: readonly CommitEntry[],
  collections: ReadonlyMap<bigint, CollectionRef>,
): Map<CollectionRef, CommitEntry[]> {
  const grouped = new Map<CollectionRef, CommitEntry[]>();
  for (const entry of entries) {
    const { isBlob, collectionNumber } = entry.commit;
    const collection = isBlob || collectionNumber === null ? undefined : collections.get(collectionNumber);
    if (!collection) continue;
    const others = grouped.get(collection);
    if (others) others.push(entry);
    else grouped.set(collection, [entry]);
  }
  return grouped;
}

const idsOf = (entries: readonly CommitEntry[]): string[] => [...new Set(entries.map(({ id }) => id))];

/** The first and the last ordinal of entries, which are in order. */
const ordinalsOf = (entries: readonly CommitEntry[]): readonly [bigint, bigint] => [
  entries[0]!.commit.ordinal,
  entries.at(-1)!.commit.ordinal,
];
