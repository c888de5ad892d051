import { execute, type Connection } from '@granary/shared/postgres/pool';
import { sql } from '@granary/shared/postgres/sql';
import type { CollectionRef } from '../catalog/collection';
import { isSearchIndex, type IndexDefinition } from '../catalog/index-definition';
import { documentsTable, searchColumn, uniqueColumn } from '../catalog/table-names';
import { dropUnusedFields } from './fields';
import { dropKeyIndexes } from './postgres-index';

/**
 * Drops the columns and the Postgres indexes of an index that the catalog does not have any more. The app must be
 * locked.
 */
export async function dropIndex(
  tx: Connection,
  table: Pick<CollectionRef, 'appNumber' | 'number'>,
  index: IndexDefinition,
): Promise<void> {
  await dropKeyIndexes(tx, table, index);
  for (const column of [
    ...(index.unique ? [uniqueColumn(index)] : []),
    ...(isSearchIndex(index) ? [searchColumn(index)] : []),
  ]) {
    // The column goes with its index and constraint. An index whose build has failed has lost its columns already.
    await execute(tx, sql`alter table ${documentsTable(table)} drop column if exists ${column}`);
  }
  await dropUnusedFields(tx, table);
}
