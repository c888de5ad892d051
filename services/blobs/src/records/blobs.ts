import { notFound } from '@granary/shared/errors';
import { execute, row, rows, type Connection, type Pool, type Queryable } from '@granary/shared/postgres/pool';
import { empty, sql, type Sql } from '@granary/shared/postgres/sql';
import { violatedConstraint } from '@granary/shared/postgres/errors';
import { retriedTransaction } from '@granary/shared/postgres/transaction';
import { releaseObjects, shareObject } from '../objects/objects';
import { changeUsage, type UsageChange } from './usage';

export interface Blob {
  /** The id of the row, which no other blob of any application has. */
  rowId: string;
  /** The id that clients use: that of the row, or the one that the client of the upload has chosen. */
  blobId: string;
  appId: string;
  /** A later app of the same id has a higher one. */
  appNumber: bigint;
  collection: string;
  state: 'pending' | 'stored' | 'deleted';
  /** null once a deleted blob no longer refers to its object. */
  objectKey: string | null;
  sizeBytes: bigint;
  /** Hex. */
  sha256: string;
  contentType: string;
  filename: string | null;
  ticket: string;
  deleteTicket: string | null;
  /** The number of the collection in the catalog of `data`; null where it is not known. */
  collectionNumber: bigint | null;
  createdAt: Date;
}

/** A blob by its row, and the commit that made it visible. */
export interface StoredUpload {
  rowId: string;
  transactionHash: string;
  height: bigint;
  /** The number of the collection in the catalog of `data`; 0 when the answer has none. */
  collectionNumber: bigint;
}

/** What clients know a blob by. */
export type BlobId = Pick<Blob, 'appId' | 'collection' | 'blobId'>;

/** The stored upload of a blob, from the answer of `data` about its commit. */
export const storedUpload = (
  rowId: string,
  commit: { transactionHash: string; height: string; collectionNumber: string },
): StoredUpload => ({
  rowId,
  transactionHash: commit.transactionHash,
  height: BigInt(commit.height),
  collectionNumber: BigInt(commit.collectionNumber),
});

export const blobNotFound = () => notFound('BLOB_NOT_FOUND', 'There is no such blob');

const columns = sql`blob_id as "rowId", coalesce(chosen_id, blob_id) as "blobId", app_id as "appId", app_number as "appNumber", collection, state, object_key as "objectKey",
  size_bytes as "sizeBytes", sha256, content_type as "contentType", filename, ticket, delete_ticket as "deleteTicket",
  collection_number as "collectionNumber", created_at as "createdAt"`;

/** The rows of the blobs that clients know by some ids. */
const hasId = (blobIds: readonly string[]): Sql =>
  sql`(chosen_id = any(${blobIds}::text[]) or (chosen_id is null and blob_id = any(${blobIds}::text[])))`;

export interface NewBlob extends Pick<
  Blob,
  'rowId' | 'blobId' | 'appId' | 'collection' | 'sha256' | 'contentType' | 'filename' | 'ticket'
> {
  appNumber: string;
  objectKey: string;
  sizeBytes: number;
}

/**
 * Inserts a blob that `data` is about to commit, and returns the key of its object: the given one, or that of an
 * object of the same app with the same bytes.
 */
export async function insertPending(db: Queryable, blob: NewBlob): Promise<string> {
  const { rowId, blobId, appId, objectKey, sha256, sizeBytes } = blob;
  const chosenId = blobId === rowId ? null : blobId;
  const inserted = await row<{ objectKey: string }>(
    db,
    sql`with shared as (
        select object_key from object
        where app_id = ${appId} and sha256 = ${sha256} and size_bytes = ${sizeBytes} and is_shared and released_at is null
        for share),
      own as (
        insert into object (object_key, app_id, sha256, size_bytes)
        select ${objectKey}, ${appId}, ${sha256}, ${sizeBytes} where not exists (select from shared))
      insert into blob (blob_id, chosen_id, app_id, app_number, collection, object_key, size_bytes, sha256, content_type, filename, ticket)
      values (${rowId}, ${chosenId}, ${appId}, ${blob.appNumber}::bigint, ${blob.collection},
        coalesce((select object_key from shared), ${objectKey}),
        ${sizeBytes}, ${sha256}, ${blob.contentType}, ${blob.filename}, ${blob.ticket})
      returning object_key as "objectKey"`,
  );
  return inserted!.objectKey;
}

/** Deletes a blob that never became visible. */
export async function discardPending(pool: Pool, rowId: string): Promise<void> {
  await retriedTransaction(pool, async (tx) => {
    const forgotten = await row<{ objectKey: string }>(
      tx,
      sql`delete from blob where blob_id = ${rowId} and state = 'pending' returning object_key as "objectKey"`,
    );
    if (forgotten) await releaseObjects(tx, [forgotten.objectKey]);
  });
}

/** A blob that is not deleted, by its row. */
export async function findBlob(db: Queryable, rowId: string): Promise<Blob | undefined> {
  return row<Blob>(db, sql`select ${columns} from blob where blob_id = ${rowId} and state <> 'deleted'`);
}

/**
 * The blobs of a collection with an id: the stored one, or the newest of several of which the events of their deletion
 * are still to come, and then the uploads under this id whose outcome is unknown, one of which `data` commits at most.
 */
export async function findBlobs(db: Queryable, appId: string, collection: string, blobId: string): Promise<Blob[]> {
  return rows<Blob>(
    db,
    sql`select ${columns} from blob
      where app_id = ${appId} and collection = ${collection} and ${hasId([blobId])} and state <> 'deleted'
      order by state = 'stored' desc, app_number desc, height desc, created_at`,
  );
}

/**
 * Marks blobs as stored, after `data` has committed them: they count in the usage, and later blobs with the same bytes
 * share their objects. Those that a later commit has deleted meanwhile are marked as deleted. Idempotent.
 */
export async function markStored(pool: Pool, uploads: readonly StoredUpload[]): Promise<void> {
  const mark = () =>
    retriedTransaction(pool, async (tx) => {
      const changes = await rows<UsageChange & { notShared: string[] }>(
        tx,
        sql`with marked as (
            update blob set state = case when deletion_height >= upload.height then 'deleted' else 'stored' end,
              deleted_at = case when deletion_height >= upload.height then now() end,
              tx_hash = upload.tx_hash, height = upload.height, stored_at = now(),
              collection_number = nullif(upload.collection_number, 0)
            from unnest(${uploads.map(({ rowId }) => rowId)}::text[],
                ${uploads.map(({ transactionHash }) => transactionHash)}::text[],
                ${uploads.map(({ height }) => height)}::bigint[],
                ${uploads.map(({ collectionNumber }) => collectionNumber)}::bigint[])
              as upload (row_id, tx_hash, height, collection_number)
            where blob.blob_id = upload.row_id and state = 'pending'
            returning blob.blob_id, state, app_id, collection, blob.collection_number, size_bytes, sha256, object_key),
          stored as (select * from marked where state = 'stored'),
          first as (
            select distinct on (app_id, sha256, size_bytes) app_id, sha256, size_bytes, object_key
            from stored order by app_id, sha256, size_bytes, blob_id),
          shared as (
            update object set is_shared = true from first
            where object.object_key = first.object_key and not object.is_shared and not exists (
              select from object other
              where other.app_id = first.app_id and other.sha256 = first.sha256
                and other.size_bytes = first.size_bytes and other.is_shared and other.released_at is null)
            returning object.object_key)
          select app_id as "appId", collection, collection_number as "collectionNumber", sum(size_bytes)::bigint as "sizeBytes", count(*) as "blobCount",
            coalesce(array_agg(blob_id) filter (where not (
              object_key in (select object_key from shared) or exists (
                select from object where object.object_key = stored.object_key and is_shared))), '{}') as "notShared"
          from stored group by app_id, collection, collection_number order by app_id, collection, collection_number`,
      );
      for (const change of changes) {
        for (const rowId of change.notShared) await shareObject(tx, rowId);
        await changeUsage(tx, change);
      }
    });
  await mark().catch((error: unknown) => {
    // Another blob with the same bytes was stored at the same moment; its object is seen when this is done again.
    if (violatedConstraint(error) === 'object_of_content') return mark();
    throw error;
  });
}

/** Records the ticket of a deletion before `data` deletes the metadata document under it. */
export async function recordDeletion(db: Queryable, rowId: string, ticket: string): Promise<void> {
  await execute(
    db,
    sql`update blob set delete_ticket = ${ticket}, delete_asked_at = now() where blob_id = ${rowId} and state = 'stored'`,
  );
}

export async function withdrawDeletion(db: Queryable, rowId: string, ticket: string): Promise<void> {
  await execute(
    db,
    sql`update blob set delete_ticket = null, delete_asked_at = null
      where blob_id = ${rowId} and state = 'stored' and delete_ticket = ${ticket}`,
  );
}

/**
 * Marks the blobs of an id as deleted that were stored before a height, that of the commit which has deleted their
 * metadata document. Their bytes are removed later. Returns their rows.
 */
export async function markDeleted(
  pool: Pool,
  blob: BlobId & Pick<Blob, 'appNumber'>,
  height: bigint,
): Promise<string[]> {
  const { appId, appNumber, collection, blobId } = blob;
  const end = { appNumber, height };
  return retriedTransaction(pool, (tx) => endBlobs(tx, { appId, collection, blobIds: [blobId], end }));
}

/** Blobs of an app that a deletion ends, and by which of them are older than it. */
export interface DeletionScope {
  appId: string;
  collection?: string;
  blobIds?: readonly string[];
  /**
   * When they end: blobs of the app that are committed after this height stay, and those of another app of its id.
   * Events of older releases, and those of whole apps, name none; then those stay that were created later, or in a
   * collection of another number.
   */
  end: { appNumber: bigint; height: bigint } | { height?: undefined; time: Date; collectionNumber?: bigint };
}

/**
 * Marks blobs as deleted, and returns their rows. A later collection of the same name, and a later blob of the same id,
 * may be there already, and stay. Where the outcome of an upload is unknown its height will decide.
 */
export async function endBlobs(tx: Connection, scope: DeletionScope): Promise<string[]> {
  const ended = await rows<UsageChange & { rowIds: string[] }>(
    tx,
    sql`with ended as (
        update blob set state = case when state = 'stored' then 'deleted' else state end,
          deleted_at = case when state = 'stored' then now() end,
          deletion_height = greatest(deletion_height, ${scope.end.height ?? null}::bigint)
        where app_id = ${scope.appId} and ${isOlder(scope.end)}
          ${scope.collection === undefined ? empty : sql`and collection = ${scope.collection}`}
          ${scope.blobIds === undefined ? empty : sql`and ${hasId(scope.blobIds)}`}
        returning blob_id, state, app_id, collection, collection_number, size_bytes)
      select app_id as "appId", collection, collection_number as "collectionNumber", -sum(size_bytes)::bigint as "sizeBytes",
        -count(*) as "blobCount", array_agg(blob_id) as "rowIds"
      from ended where state = 'deleted'
      group by app_id, collection, collection_number order by collection, collection_number`,
  );
  for (const change of ended) await changeUsage(tx, change);
  return ended.flatMap(({ rowIds }) => rowIds);
}

function isOlder(end: DeletionScope['end']): Sql {
  if (end.height !== undefined)
    return sql`(app_number = ${end.appNumber} and (state = 'pending' or (state = 'stored' and height <= ${end.height})))`;
  const wasEarlier = sql`created_at <= ${end.time}`;
  if (end.collectionNumber === undefined) return sql`(state = 'stored' and ${wasEarlier})`;
  return sql`(state = 'stored' and
    (collection_number = ${end.collectionNumber} or (collection_number is null and ${wasEarlier})))`;
}

/** Uploads whose outcome is unknown, oldest first. */
export async function findPending(db: Queryable, limit: number): Promise<Blob[]> {
  return rows<Blob>(db, sql`select ${columns} from blob where state = 'pending' order by created_at limit ${limit}`);
}

/** Deletions that were recorded more than `ageMs` ago and never finished, oldest first. */
export async function findDeleting(db: Queryable, ageMs: number, limit: number): Promise<Blob[]> {
  return rows<Blob>(
    db,
    sql`select ${columns} from blob where state = 'stored' and delete_ticket is not null
        and delete_asked_at < now() - ${ageMs} * interval '1 millisecond'
      order by delete_asked_at limit ${limit}`,
  );
}

/** Detaches at most `limit` deleted blobs from their objects and releases objects without users. Returns how many. */
export async function detachObjects(pool: Pool, limit: number): Promise<number> {
  return retriedTransaction(pool, async (tx) => {
    const references = await rows<{ objectKey: string }>(
      tx,
      sql`with deleted as (
          select blob_id, object_key from blob where state = 'deleted' and object_key is not null
          order by deleted_at limit ${limit} for update skip locked)
        update blob set object_key = null from deleted where blob.blob_id = deleted.blob_id
        returning deleted.object_key as "objectKey"`,
    );
    if (references.length > 0)
      await releaseObjects(
        tx,
        references.map(({ objectKey }) => objectKey),
      );
    return references.length;
  });
}
