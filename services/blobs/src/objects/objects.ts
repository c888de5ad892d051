import { execute, row, rows, type Connection, type Queryable } from '@granary/shared/postgres/pool';
import { sql } from '@granary/shared/postgres/sql';

/**
 * Which objects there are in the store, and which blobs use them. Blobs of one app with the same bytes use one object;
 * those of different apps never do. Two rules keep an object and its users together: a new blob takes a share lock on
 * the object that it is going to use, and an object is released under a lock that excludes it, once no blob is left
 * that uses it. A released object is never used again; the same bytes get a new one.
 */

/** Identifies this installation to a bucket that it might share with others by mistake. */
export async function installationId(db: Queryable): Promise<string> {
  return (await row<{ id: string }>(db, sql`select id::text from installation`))!.id;
}

/** The keys among those given that belong to this installation. */
export async function knownKeys(db: Queryable, keys: readonly string[]): Promise<ReadonlySet<string>> {
  const known = await rows<{ key: string }>(
    db,
    sql`select object_key as key from object where object_key = any(${keys}::text[])`,
  );
  return new Set(known.map(({ key }) => key));
}

/**
 * Makes a blob that was stored use the object of others with the same bytes. That there was one is seen only now: both
 * were uploaded at the same moment. Its own object is released.
 */
export async function shareObject(tx: Connection, blobId: string): Promise<void> {
  const other = await row<{ own: string; shared: string }>(
    tx,
    sql`select own.object_key as own, shared.object_key as shared
      from blob
        join object own on own.object_key = blob.object_key
        join object shared on shared.app_id = own.app_id and shared.sha256 = own.sha256
          and shared.size_bytes = own.size_bytes and shared.is_shared and shared.released_at is null
      where blob_id = ${blobId} and not own.is_shared
      for share of shared`,
  );
  if (!other) return;
  await execute(tx, sql`update blob set object_key = ${other.shared} where blob_id = ${blobId}`);
  await releaseObjects(tx, [other.own]);
}

/** Releases those of the objects that no blob uses any more, as this transaction sees it. */
export async function releaseObjects(tx: Connection, keys: readonly string[]): Promise<void> {
  // The lock comes first, in a statement of its own: what the next one sees is then final. The order avoids deadlocks.
  await execute(tx, sql`select from object where object_key = any(${keys}::text[]) order by object_key for update`);
  await execute(
    tx,
    sql`update object set released_at = now()
      where object_key = any(${keys}::text[]) and released_at is null
        and not exists (select from blob where blob.object_key = object.object_key)`,
  );
}

export async function findReleased(db: Queryable, limit: number): Promise<string[]> {
  const found = await rows<{ key: string }>(
    db,
    sql`select object_key as key from object where released_at is not null order by released_at limit ${limit}`,
  );
  return found.map(({ key }) => key);
}

/** Forgets objects whose bytes are gone. */
export async function forgetReleased(db: Queryable, keys: readonly string[]): Promise<void> {
  await execute(db, sql`delete from object where object_key = any(${keys}::text[]) and released_at is not null`);
}
