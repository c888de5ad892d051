import { execute, rows, type Connection } from '@granary/shared/postgres/pool';
import { join, sql } from '@granary/shared/postgres/sql';
import type { CollectionRef } from '../catalog/collection';
import { documentsTable, emptyKey, keyColumn } from '../catalog/table-names';
import type { IndexedField } from '../catalog/index-definition';

type Table = Pick<CollectionRef, 'appNumber' | 'number'>;

/**
 * The numbers of fields, in their order. Those that the collection does not have yet are added with their columns,
 * which writers fill from then on. The app must be locked.
 */
export async function ensureFields(
  tx: Connection,
  table: Table,
  fields: ReadonlyArray<Pick<IndexedField, 'name' | 'isDate'>>,
): Promise<bigint[]> {
  const source = sql`unnest(${fields.map(({ name }) => name)}::text[], ${fields.map(({ isDate }) => isDate)}::bool[])`;
  const added = await rows<{ number: bigint }>(
    tx,
    sql`insert into indexed_field (app_number, collection_number, path, is_date)
        select ${table.appNumber}, ${table.number}, path, is_date from ${source} as wanted (path, is_date)
        on conflict (collection_number, path, is_date) do nothing returning number`,
  );
  if (added.length > 0) {
    const columns = added.map((field) => sql`add column ${keyColumn(field)} bytea not null default ${emptyKey}`);
    await execute(tx, sql`alter table ${documentsTable(table)} ${join(columns, ', ')}`);
  }
  const matches = await rows<{ number: bigint }>(
    tx,
    sql`select f.number from ${source} with ordinality as wanted (path, is_date, at)
        join indexed_field f on f.collection_number = ${table.number} and (f.path, f.is_date) = (wanted.path, wanted.is_date)
        order by wanted.at`,
  );
  return matches.map(({ number }) => number);
}

/** Drops the fields that no index uses any more, with their columns. The app must be locked. */
export async function dropUnusedFields(tx: Connection, table: Table): Promise<void> {
  const dropped = await rows<{ number: bigint }>(
    tx,
    sql`delete from indexed_field f where f.collection_number = ${table.number}
          and not exists (select from document_index i where i.collection_number = ${table.number} and f.number = any(i.field_numbers))
        returning f.number`,
  );
  if (dropped.length === 0) return;
  const columns = dropped.map((field) => sql`drop column ${keyColumn(field)}`);
  await execute(tx, sql`alter table ${documentsTable(table)} ${join(columns, ', ')}`);
}
