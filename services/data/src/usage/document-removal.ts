import { append } from '@granary/shared/bus/outbox';
import { isConnectionError, isRetryable, sqlState } from '@granary/shared/postgres/errors';
import { row, type Connection } from '@granary/shared/postgres/pool';
import { empty, sql, type Sql } from '@granary/shared/postgres/sql';
import type { CollectionRef } from '../catalog/collection';
import { logErasure } from '../chain/erasure-log';
import { documentsTable, historyTable } from '../catalog/table-names';
import { usageColumns, usageEvent, type UsageRow } from './event';

/** Ids that one event of at most 64 KiB names: an id has up to 256 characters, each up to 6 bytes of JSON. */
const eventIdsMax = 40;

/** Additions to the statement that removes documents; they change derived rows. */
export interface DerivedRemoval {
  /** CTEs that can read `gone`; empty or with a comma before them. */
  ctes: Sql;
  /** Columns that `gone` returns for them beside its own; empty or with a comma before them. */
  returning: Sql;
}

/** Keeps derived rows right when the documents that they come from are removed. */
export interface DerivedRemovals {
  removalFrom(collection: CollectionRef): DerivedRemoval;
  /** Stops the rows that are derived from the collection from following it. The app must be locked. */
  abandon(tx: Connection, collection: CollectionRef): Promise<void>;
}

/** Runs a removal; again without what is derived from the documents where Postgres refuses a statement. */
export async function withoutDerivedOnFailure<T>(remove: (isWithout: boolean) => Promise<T>): Promise<T> {
  try {
    return await remove(false);
  } catch (error) {
    if (sqlState(error) === undefined || isConnectionError(error) || isRetryable(error)) throw error;
    return remove(true);
  }
}

export const nothingRemoved: DerivedRemoval = { ctes: empty, returning: empty };

export interface RemovalOptions {
  /** A condition on the rows of the documents, besides their ids. */
  only: Sql;
  /** Older versions that are removed at most; where there are more, the documents themselves stay for the next time. */
  historyMax: number;
  at: Date;
  derived: DerivedRemoval;
}

export interface Removed {
  /** The documents that are gone with all of their versions. */
  ids: string[];
  /** How many versions are gone, older and latest. */
  versions: number;
  /** Whether nothing is left to do for these documents. */
  isComplete: boolean;
}

const nothing: Removed = { ids: [], versions: 0, isComplete: true };

/**
 * Removes the rows of documents from every table of their collection, and appends the events of it: that of the ids, by
 * which blobs are deleted, and that of the usage. The commits that stored them keep the hashes of their texts. The app
 * must be locked. Purges and erasures are made of this: documents change nowhere else but in commits.
 */
export async function removeDocuments(
  tx: Connection,
  collection: CollectionRef,
  ids: readonly string[],
  { only, historyMax, at: time, derived }: RemovalOptions,
): Promise<Removed> {
  const [documents, history] = [documentsTable(collection), historyTable(collection)];
  const removal = await row<RemovalRow & { versions: bigint; is_complete: boolean }>(
    tx,
    sql`with wanted as materialized (
          select id from ${documents} where id = any(${ids}) and (${only})
        ), older as (
          delete from ${history} where ctid = any(array(
            select h.ctid from wanted join ${history} h using (id) limit ${historyMax}))
          returning octet_length(body) as bytes
        ), gone as (
          delete from ${documents} where id in (select id from wanted) and (select count(*) from older) < ${historyMax}
          returning id, deleted, octet_length(body) as bytes${derived.returning}
        )${derived.ctes}
        update collection set
          row_count = row_count - g.documents, deleted_count = deleted_count - g.deleted, version_count = version_count - g.older,
          size_bytes = size_bytes - g.bytes,
          usage_sequence = usage_sequence + 1 + (g.documents + ${eventIdsMax - 1}) / ${eventIdsMax}
        from (select (select count(*) from gone) as documents, (select count(*) from gone where deleted) as deleted,
                (select count(*) from older) as older,
                (select coalesce(sum(bytes), 0) from gone) + (select coalesce(sum(bytes), 0) from older) as bytes,
                array(select id from gone) as ids) g
        where number = ${collection.number} and g.documents + g.older > 0
        returning ${usageColumns}, g.ids, g.documents + g.older as versions, g.older < ${historyMax} as is_complete,
          (select height from head where app_number = ${collection.appNumber})`,
  );
  if (!removal) return nothing;
  await append(tx, removalEvents(collection, removal, time));
  if (removal.ids.length > 0) await logErasure(tx, collection, { reason: 'erased', ids: removal.ids, at: time });
  return { ids: removal.ids, versions: Number(removal.versions), isComplete: removal.is_complete };
}

interface RemovalRow extends UsageRow {
  ids: string[];
  /** That of the head: documents of these ids that are stored later have a higher one. */
  height: bigint;
}

/** The events of the ids, and after them that of the usage; their sequence numbers end with that of the usage. */
function removalEvents({ appId, appNumber, name }: CollectionRef, removal: RemovalRow, time: Date) {
  const usage = usageEvent(appId, name, removal, time);
  const count = Math.ceil(removal.ids.length / eventIdsMax);
  const purged = Array.from({ length: count }, (_, chunk) => ({
    ...usage,
    aggregateSequence: usage.aggregateSequence - BigInt(count - chunk),
    type: 'documents.purged',
    payload: {
      app_id: appId,
      collection: name,
      ids: removal.ids.slice(chunk * eventIdsMax, (chunk + 1) * eventIdsMax),
      app_number: appNumber.toString(),
      height: removal.height.toString(),
      at: time.toISOString(),
    },
  }));
  return [...purged, usage];
}
