import { execute, row, rows, type Connection, type Queryable } from '@granary/shared/postgres/pool';
import { sql } from '@granary/shared/postgres/sql';

/**
 * The objects in the store and their references. Blobs of one app with the same bytes share an object; blobs of
 * different apps never do. Two rules keep references valid: a new blob takes a share lock on the object that it will
 * use, and an object is released under an exclusive lock, when no blob uses it. A released object is never used again;
 * the same bytes get a new one.
 */

/** The id that marks a bucket as belonging to this installation. */
export async function installationId(db: Queryable): Promise<string> {
  return (await row<{ id: string }>(db, sql`select id::text from installation`))!.id;
}

/** The keys among those given that belong to this installation. */
export async function knownKeys(db: Queryable, keys: readonly string[]): Promise<ReadonlySet<string>> {
  const objects = await rows<{ key: string }>(
    db,
    sql`select object_key as key from object where object_key = any(${keys}::text[])`,
  );
  return new Set(objects.map(({ key }) => key));
}

/**
 * Makes a stored blob share the object of another one with the same bytes, and releases its own. Needed when both were
 * uploaded concurrently.
 */
export async function shareObject(tx: Connection, rowId: string): Promise<void> {
  const other = await row<{ own: string; shared: string }>(
    tx,
    sql`select own.object_key as own, shared.object_key as shared
      from blob
        join object own on own.object_key = blob.object_key
        join object shared on shared.app_id = own.app_id and shared.sha256 = own.sha256
          and shared.size_bytes = own.size_bytes and shared.is_shared and shared.released_at is null
      where blob_id = ${rowId} and not own.is_shared
      for share of shared`,
  );
  if (!other) return;
  await execute(tx, sql`update blob set object_key = ${other.shared} where blob_id = ${rowId}`);
  await releaseObjects(tx, [other.own]);
}

/** Releases the objects among `keys` that no blob uses any more, as this transaction sees it. */
export async function releaseObjects(tx: Connection, keys: readonly string[]): Promise<void> {
  // Locked first, by a statement of its own: the next one then has a snapshot that includes all users. Ordered against
  // deadlocks.
  await execute(tx, sql`select from object where object_key = any(${keys}::text[]) order by object_key for update`);
  await execute(
    tx,
    sql`update object set released_at = now()
      where object_key = any(${keys}::text[]) and released_at is null
        and not exists (select from blob where blob.object_key = object.object_key)`,
  );
}

export async function findReleased(db: Queryable, limit: number): Promise<string[]> {
  const objects = await rows<{ key: string }>(
    db,
    sql`select object_key as key from object where released_at is not null order by released_at limit ${limit}`,
  );
  return objects.map(({ key }) => key);
}

/** Deletes the rows of objects whose bytes are removed. */
export async function deleteReleased(db: Queryable, keys: readonly string[]): Promise<void> {
  await execute(db, sql`delete from object where object_key = any(${keys}::text[]) and released_at is not null`);
}
