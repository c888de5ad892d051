import { rows, type Queryable } from '@granary/shared/postgres/pool';
import { sql } from '@granary/shared/postgres/sql';
import type { CollectionRef } from '../catalog/collection';
import { documentsTable, historyTable } from '../catalog/table-names';
import { collectionAt, commitsTable, entryCount } from './commit-log';

/** A commit with what its content hash is made of. */
export interface CommitRecord {
  height: bigint;
  ordinal: bigint;
  hash: Buffer;
  content: Buffer;
  operation: 'store' | 'upload';
  /** Whether it is the first link of an upload, whose entry is the bytes. */
  isBlob: boolean;
  collection: string;
  /** Null when the catalog no longer says. */
  collectionNumber: bigint | null;
  ids: string[];
  /** Null for commits of the first releases whose texts are gone. */
  hashes: Buffer | null;
  at: Date;
}

/**
 * So many commits from a height on, in order; fewer where those before have `entriesMax` entries together, but one at
 * least. Lengths are read without the ids and hashes.
 */
export const readCommits = (
  db: Queryable,
  appNumber: bigint,
  from: bigint,
  limit: number,
  entriesMax: number,
): Promise<CommitRecord[]> =>
  rows<CommitRecord>(
    db,
    sql`select height, coalesce(ordinal, height) as ordinal, hash, content_hash as content, operation,
          operation = 'upload' and ticket_id is not null as "isBlob", collection,
          ${collectionAt(appNumber)} as "collectionNumber", ids, hashes, at
        from (
          select *, coalesce(sum(entries) over (order by height rows between unbounded preceding and 1 preceding), 0) as before
          from (
            select m.*, ${entryCount(sql`m`)} as entries
            from ${commitsTable(appNumber)} m where height >= ${from} order by height limit ${limit}
          ) counted
        ) c where before < ${entriesMax} order by height`,
  );

/** The position of a version among all versions of its app. */
export interface VersionPlace {
  ordinal: bigint;
  place: number;
}

/** The versions of documents that commits of these ordinals wrote, as far as they are still stored. */
const versionsOf = (collection: CollectionRef, ids: readonly string[], from: bigint, to: bigint) => {
  const columns = sql`id, body, ordinal, place`;
  return sql`(select ${columns} from ${documentsTable(collection)}
              union all select ${columns} from ${historyTable(collection)}) v
             where v.id = any(${ids}) and v.ordinal between ${from} and ${to}`;
};

/** Bytes of their texts. */
export const readTextSizes = (
  db: Queryable,
  collection: CollectionRef,
  ids: readonly string[],
  [from, to]: readonly [bigint, bigint],
): Promise<Array<VersionPlace & { bytes: number }>> =>
  rows(db, sql`select ordinal, place, octet_length(body) as bytes from ${versionsOf(collection, ids, from, to)}`);

export const readTexts = (
  db: Queryable,
  collection: CollectionRef,
  ids: readonly string[],
  [from, to]: readonly [bigint, bigint],
): Promise<Array<VersionPlace & { text: string }>> =>
  rows(db, sql`select ordinal, place, body as text from ${versionsOf(collection, ids, from, to)}`);
