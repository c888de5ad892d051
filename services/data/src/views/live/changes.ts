import { join, sql, trusted, type Sql } from '@granary/shared/postgres/sql';
import type { CollectionRef } from '../../catalog/collection';
import { documentsTable, historyTable } from '../../catalog/table-names';

/** The tables of a collection. */
export type DocumentTables = Pick<CollectionRef, 'appNumber' | 'number'>;

/**
 * The CTE `change`, from which the rows of live views are changed. It has a row of weight −1 for each version that was
 * visible before, and one of weight 1 for each that is visible now. A record is parsed once, for all views of its
 * collection.
 */
export const changeCte = (rows: Sql): Sql =>
  sql`change as materialized (select c.*, c.body::jsonb as j from (${rows}) c)`;

/** No change, for views that have a row over nothing. */
export const noChanges: Sql = sql`
  select 0 as w, ''::text as id, '{}'::text as body, 0::int8 as ordinal, 0 as place where false`;

/** The changes of an upsert, from `written`. */
export const writtenChanges: Sql = sql`
  select -1 as w, old_id as id, old_body as body, old_ordinal as ordinal, old_place as place from written
  where old_id is not null and not old_deleted
  union all select 1, id, body, ordinal, place from written where not deleted`;

/** The changes of a removal, from `gone`. */
export const removedChanges: Sql = sql`select -1 as w, id, body, ordinal, place from gone where not deleted`;

/** The changes of new documents, by their ids. */
export const addedChanges = (collection: DocumentTables, ids: Buffer): Sql =>
  sql`select 1 as w, t.id, t.body, t.ordinal, t.place from ${documentsTable(collection)} t where t.id = any(${ids}::text[]) and not t.deleted`;

/** Documents as parameters: arrays of their ids, texts, ordinals and places. */
export interface GivenDocuments {
  ids: Buffer;
  texts: Buffer;
  ordinals: Buffer;
  places: Buffer;
}

/** The changes of new documents that may be in no table yet. */
export const givenChanges = ({ ids, texts, ordinals, places }: GivenDocuments): Sql => sql`
  select 1 as w, g.id, g.body, g.ordinal, g.place
  from unnest(${ids}::text[], ${texts}::text[], ${ordinals}::int8[], ${places}::int4[]) as g(id, body, ordinal, place)`;

/** All visible documents. */
export const presentChanges = (collection: DocumentTables): Sql =>
  sql`select 1 as w, t.id, t.body, t.ordinal, t.place from ${documentsTable(collection)} t where not t.deleted`;

/** The changes from the versions of documents at one ordinal to those at another; the ids are in `ids`. */
export function changesBetween(collection: DocumentTables, from: bigint | undefined, to: bigint): Sql {
  const changesAt = (weight: -1 | 1, ordinal: bigint): Sql => sql`
    select ${trusted(String(weight))} as w, u.id, u.body, u.ordinal, u.place
    from ids cross join lateral (${versionAt(collection, sql`ids.id`, ordinal)}) u
    where not u.deleted`;
  return join([...(from === undefined ? [] : [changesAt(-1, from)]), changesAt(1, to)], ' union all ');
}

/** The version that a document had at an ordinal, which may mark it as deleted. */
export const versionAt = (collection: DocumentTables, id: Sql, ordinal: bigint): Sql => sql`
  select z.* from (
    select t.id, t.body, t.ordinal, t.place, t.deleted, t.version from ${documentsTable(collection)} t
    where t.id = ${id} and t.ordinal <= ${ordinal}
    union all
    (select h.id, h.body, h.ordinal, h.place, h.deleted, h.version from ${historyTable(collection)} h
     where h.id = ${id} and h.ordinal <= ${ordinal} order by h.version desc limit 1)) z
  order by z.version desc limit 1`;

/** The latest version of a document. Looked up for each row: nothing else is cheap in large collections. */
export const latestVersion = (collection: DocumentTables, id: Sql): Sql =>
  sql`select t.id, t.body, t.ordinal, t.place from ${documentsTable(collection)} t where t.id = ${id} offset 0`;
