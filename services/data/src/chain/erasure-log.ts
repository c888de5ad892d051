import { execute, row, type Connection } from '@granary/shared/postgres/pool';
import { named, sql, type Sql } from '@granary/shared/postgres/sql';
import { bumpCatalogRevision } from '../catalog/app-lock';
import { isFreeForAll, type CollectionRef } from '../catalog/collection';
import { commitsTable, entryCount } from './commit-log';

/** Why documents are gone: their texts were erased, or their collection was dropped. */
export type ErasureReason = 'erased' | 'dropped';

/**
 * An erasure happens to an app between two commits, and so does the beginning of the log of a view's rows.
 */
export type BetweenReason = ErasureReason | 'view';

/**
 * Whoever follows the commits of an app learns here, between two of them, which texts are gone. Followers of views find
 * here where the log of their rows begins.
 */
export const erasuresTable = (appNumber: bigint): Sql => named('a_', appNumber, '.erasures');

/** The place behind the erasures of a height; no row where there are none. A row has as many places as ids. */
export const endOfErasures = (appNumber: bigint, height: Sql): Sql =>
  sql`select e.place + greatest(cardinality(e.ids), 1) as place from ${erasuresTable(appNumber)} e
      where e.height = ${height} order by e.place desc limit 1`;

/**
 * The height of the last commit of an app, and the place behind all that has happened at it: a row of `height, place`.
 * The table of erasures must be there.
 */
export const endOfLog = (appNumber: bigint): Sql => sql`
  select h.height,
    greatest(coalesce((${endOfErasures(appNumber, sql`h.height`)}), 0),
             (select coalesce(max(${entryCount(sql`c`)}), 0) from ${commitsTable(appNumber)} c where c.height = h.height)) as place
  from head h where h.app_number = ${appNumber}`;

/**
 * Logs an erasure behind the last commit of its app: it takes the next places of that height, one for each id, or one
 * for a collection. The app must be locked. The first erasure of an app creates the table. The revision of the catalog
 * grows, which followers of the app notice.
 */
export async function logErasure(
  tx: Connection,
  collection: CollectionRef,
  erasure: { reason: ErasureReason; ids: readonly string[]; at: Date },
): Promise<void> {
  await logBetweenCommits(tx, { ...collection, ...erasure, isPublic: isFreeForAll(collection) });
}

/** An event that takes a place between two commits, of a collection or of a view. */
interface BetweenCommits {
  appNumber: bigint;
  number: bigint;
  name: string;
  reason: BetweenReason;
  ids: readonly string[];
  at: Date;
  /** Whether anybody may be told. */
  isPublic: boolean;
}

/** As `logErasure`; returns the place that it takes. */
export async function logBetweenCommits(
  tx: Connection,
  { appNumber, number, name, reason, ids, at: time, isPublic }: BetweenCommits,
): Promise<{ height: bigint; place: number }> {
  const table = erasuresTable(appNumber);
  await execute(
    tx,
    sql`create table if not exists ${table} (
          height bigint not null, place int not null, reason text not null, collection text not null,
          collection_number bigint not null, is_public boolean not null, ids text[] not null, at timestamptz not null,
          primary key (height, place))`,
  );
  const place = await row<{ height: bigint; place: number }>(
    tx,
    sql`insert into ${table} (height, place, reason, collection, collection_number, is_public, ids, at)
        select l.height, l.place, ${reason}, ${name}, ${number}, ${isPublic}, ${ids}::text[], ${time}
        from (${endOfLog(appNumber)}) l returning height, place`,
  );
  await bumpCatalogRevision(tx, appNumber);
  return place!;
}
