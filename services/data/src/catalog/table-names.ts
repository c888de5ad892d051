import { named, sql, Sql, trusted } from '@granary/shared/postgres/sql';
import type { CollectionRef } from './collection';
import type { DatasetTable } from './dataset';
import type { IndexDefinition, IndexedField } from './index-definition';

/**
 * The latest version of each document: a row has id, body, version, deleted, created_at, updated_at, ordinal, place,
 * and the keys.
 */
export const documentsTable = (of: Pick<CollectionRef, 'appNumber' | 'number'>): Sql =>
  named('a_', of.appNumber, '.c_', of.number);

/** Older versions, with the same columns but for the keys. */
export const historyTable = (of: Pick<CollectionRef, 'appNumber' | 'number'>): Sql =>
  named('a_', of.appNumber, '.h_', of.number);

/** The BRIN index of a collection's documents by `updated_at`, by which a purge finds those past their retention. */
export const ageIndexName = ({ number }: Pick<CollectionRef, 'number'>): Sql => named('b_', number);

/** The rows of a view: id (the place of the row in the view's own order, as text that sorts), body, and keys. */
export const viewTable = (appNumber: bigint, tableNumber: bigint): Sql => named('a_', appNumber, '.v_', tableNumber);

/** The values that the groups of a live view keep beside sums (see views/live/entries.ts). */
export const viewEntriesTable = (appNumber: bigint, tableNumber: bigint): Sql =>
  named('a_', appNumber, '.w_', tableNumber);

/** The table of the keys by which the documents of a live view with a join meet (see views/live/join-pairs.ts). */
export const viewJoinKeysTable = (appNumber: bigint, tableNumber: bigint): Sql =>
  named('a_', appNumber, '.j_', tableNumber);

/** The log of changed rows of an app's views, with `changes` (see views/row-log.ts). */
export const viewLogTable = (appNumber: bigint): Sql => named('a_', appNumber, '.view_log');

/** The column with the key of a field of the rows of a view. */
export const viewKeyColumn = (number: number): Sql => named('f_', BigInt(number));

/** The column with the key of an indexed field (see values/ordered-key.ts). */
export const keyColumn = ({ number }: Pick<IndexedField, 'number'>): Sql => named('f_', number);

/**
 * Returns a key for an order that descends and is read backwards. Missing and null, whose key is otherwise the last,
 * get the first one, so that they come last there too.
 */
export const descendingKey = (key: Sql): Sql => sql`(case when ${key} = ${emptyKey} then ''::bytea else ${key} end)`;

/** The key of missing and null. */
export const emptyKey = trusted(`'\\xf0'::bytea`);

/** The column of a full-text index (see values/search-text.ts). */
export const searchColumn = (index: Pick<IndexDefinition, 'number'>): Sql => named('t_', index.number);

/** The column that a unique index is on: type and value as text, null where nothing can collide. */
export const uniqueColumn = (index: Pick<IndexDefinition, 'number'>): Sql => named('u_', index.number);

/** The values of a data set: key, and text where the value is a string. */
export const datasetTable = ({ appNumber, tableNumber }: DatasetTable): Sql =>
  named('a_', appNumber, '.d_', tableNumber);

/** Which rows of such a table have their text in an index: all that can be the id of a document. */
export const datasetTextIndexed = trusted('octet_length(text) <= 1024');

/** The name that a replacement has until it takes the place of its view; no view can have it. */
export const replacementName = (name: string): string => `~${name}`;
/** The name of the view `v`, or of the one that it replaces. */
export const shownViewName = sql`ltrim(v.name, '~')`;
