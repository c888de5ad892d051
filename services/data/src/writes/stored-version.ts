import { rows, type Pool } from '@granary/shared/postgres/pool';
import { sql } from '@granary/shared/postgres/sql';
import type { App } from '../catalog/app';
import type { CatalogCache } from '../catalog/cache';
import type { CollectionRef } from '../catalog/collection';
import { documentsTable, historyTable } from '../catalog/table-names';
import { findLinks, type LoggedLink } from '../chain/commit-log';
import type { Committed, NewVersion, WriteLink } from '../commit/write';
import { noSuchDocument } from '../documents/document-error';
import { changesByCollection, type DocumentChange } from './document-change';

/** A version of a document as a change stored it. */
export interface StoredVersion extends NewVersion {
  id: string;
  json: Buffer;
  deleted: boolean;
  /** The height of its commit. */
  height: bigint;
  hash: Buffer;
}

/**
 * Returns the versions that a committed write made of its documents, in the order of its changes. A write that had
 * committed before is looked up. Throws DOCUMENT_NOT_FOUND where a version is gone, because it was purged or its
 * collection deleted.
 */
export async function storedVersions(
  pool: Pool,
  collections: Pick<CatalogCache, 'get'>,
  app: App,
  { links, height }: Committed,
  changes: readonly DocumentChange[],
): Promise<StoredVersion[]> {
  const byCollection = changesByCollection(changes);
  const versionsByChange = new Map<DocumentChange, StoredVersion>();
  for (const link of links ?? []) {
    for (const [index, change] of byCollection.get(link.collection)!.entries())
      versionsByChange.set(change, versionIn(link, index));
  }
  if (links) return changes.map((change) => versionsByChange.get(change)!);
  for (const link of await findLinks(pool, app.number, height, byCollection.size)) {
    const collection = await collections.get(app, link.collection);
    const versions = collection && (await findVersions(pool, collection, link));
    for (const [index, change] of byCollection.get(link.collection)!.entries()) {
      // The id may have been made for the earlier request.
      const id = link.ids[index]!;
      const version = versions?.get(id);
      if (!version) throw noSuchDocument(id);
      versionsByChange.set(change, { ...version, height: link.height, hash: link.hash });
    }
  }
  return changes.map((change) => versionsByChange.get(change)!);
}

/** The version at a place of a link. */
function versionIn({ link, documents, versions }: WriteLink, index: number): StoredVersion {
  const { id, text, start, end, deleted } = documents[index]!;
  return { id, ...versions![index]!, json: text.subarray(start, end), deleted, height: link.height, hash: link.hash };
}

interface VersionRow {
  id: string;
  version: bigint;
  body: string;
  deleted: boolean;
  created: boolean;
}

/** The versions that a commit made of documents, by their ids. */
async function findVersions(
  pool: Pool,
  collection: CollectionRef,
  { ids, ordinal }: LoggedLink,
): Promise<Map<string, Omit<StoredVersion, 'height' | 'hash'>>> {
  const history = historyTable(collection);
  const versions = await rows<VersionRow>(
    pool,
    sql`select v.id, v.version, v.body, v.deleted,
          coalesce((select deleted from ${history} h where h.id = v.id and h.version = v.version - 1), true) as created
        from (select id, version, body, deleted, ordinal from ${documentsTable(collection)}
              union all select id, version, body, deleted, ordinal from ${history}) v
        where v.id = any(${ids}::text[]) and v.ordinal = ${ordinal}`,
  );
  return new Map(versions.map(({ body, ...version }) => [version.id, { ...version, json: Buffer.from(body) }]));
}
