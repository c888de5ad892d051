import { copyInto } from '@granary/shared/postgres/copy';
import { pipeline } from '@granary/shared/postgres/pipeline';
import { row, type Connection } from '@granary/shared/postgres/pool';
import { sql } from '@granary/shared/postgres/sql';
import { datasetTable, datasetTextIndexed } from '../catalog/table-names';
import type { DatasetTable } from '../catalog/dataset';
import type { DatasetRow } from './values';

const columns = { names: sql`key, text`, count: 2 };

/**
 * Makes a table of values, with what the planner needs to know of them. Nobody else sees it before the end of the
 * transaction.
 */
export async function makeDatasetTable(
  tx: Connection,
  appNumber: bigint,
  values: readonly DatasetRow[],
): Promise<DatasetTable> {
  const sequence = await row<{ number: bigint }>(tx, sql`select nextval('dataset_table_number') as number`);
  const made = { appNumber, tableNumber: sequence!.number };
  const table = datasetTable(made);
  const copy = await copyInto(table, columns, values, (writer, { key, text }) => {
    writer.textField(key);
    writer.textField(text);
  });
  await pipeline(tx, [
    sql`create table ${table} (key bytea not null, text text collate "C")`,
    copy,
    sql`create index on ${table} (key)`,
    // This index finds ids, which are compared as texts.
    sql`create index on ${table} (text) where ${datasetTextIndexed}`,
    sql`analyze ${table}`,
  ]);
  return made;
}
