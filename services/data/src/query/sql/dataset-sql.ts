import { sql, type Sql } from '@granary/shared/postgres/sql';
import { datasetTable, datasetTextIndexed } from '../../catalog/table-names';
import type { ConditionOf, Path } from '../language/condition';
import { isTruncatedKey } from './key-sql';
import type { RowFields } from './row-fields';

/** A field has one of the values of a data set: keys are joined by their indexes, ids by their texts. */
export function datasetSql(fields: RowFields, { path, name, table }: ConditionOf<'dataset'>): Sql {
  if (!table) throw new Error(`the data set ${name} was not looked up`);
  const values = datasetTable(table);
  if (fields.isId(path)) {
    return sql`exists (select from ${values} v where v.text = ${fields.id} and ${datasetTextIndexed})`;
  }
  const key = fields.keyOf(path) ?? computedKey(fields, path);
  // Postgres makes a join of the first part only because it is an equality and nothing else.
  return sql`(exists (select from ${values} v where v.key = ${key}) and (not (${isTruncatedKey(key)})
    or exists (select from ${values} v where v.key = ${key} and v.text = (${fields.rareValue(path)} #>> '{}'))))`;
}

function computedKey(fields: RowFields, path: Path): Sql {
  const value = fields.value(path);
  return fields.isDate(path) ? sql`date_sort_key(${value})` : sql`sort_key(${value})`;
}
