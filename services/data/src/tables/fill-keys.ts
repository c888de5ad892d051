import { execute, type Queryable } from '@granary/shared/postgres/pool';
import { join, Sql, sql } from '@granary/shared/postgres/sql';
import { documentsTable, keyColumn, searchColumn, uniqueColumn } from '../catalog/table-names';
import { appendStoredKeys, keyArrays } from '../documents/keys';
import type { CollectionRef } from '../catalog/collection';
import { compileRules, type DocumentRules } from '../documents/rules';
import { isSearchIndex, type IndexDefinition } from '../catalog/index-definition';
import { OrderedKeys } from '../values/ordered-key';
import type { Report } from '../jobs/queue';
import { documentBatch, type StoredDocument } from './document-batch';

const vacuumEveryBatches = 10;
/**
 * Fills the columns of an index for the rows that writers have not filled since: in batches by id, each update only
 * where the version is still the one that was read.
 */
export async function fillKeys(
  db: Queryable,
  collection: CollectionRef,
  index: IndexDefinition,
  update: (statement: Sql) => Promise<unknown>,
  report: Report | undefined,
): Promise<void> {
  const rules = compileRules(index.keys, [index], undefined);
  const table = documentsTable(collection);
  // Only a build beside the writers reports; a transaction can neither vacuum nor needs to.
  const vacuums = report !== undefined;
  let last = '';
  let done = 0;
  let batches = 0;
  for (;;) {
    const batch = await documentBatch(db, collection, last);
    if (batch.length === 0) return;
    await update(fillingBatch(table, index, rules, batch));
    last = batch.at(-1)!.id;
    done += batch.length;
    // Each update leaves a dead row behind: without this the table would double.
    batches += 1;
    if (vacuums && batches % vacuumEveryBatches === 0) await execute(db, sql`vacuum ${table}`);
    await report?.(Math.min(0.8, (0.8 * done) / Math.max(1, Number(collection.rowCount))), `${done} documents read`);
  }
}

/** Writes the keys, unique values and full texts of rows that are still as they were read, where they differ. */
function fillingBatch(table: Sql, index: IndexDefinition, rules: DocumentRules, batch: readonly StoredDocument[]): Sql {
  const keys = new OrderedKeys(batch.length * index.keys.length * 32);
  const filled = batch.map(({ body }) => {
    const keysStart = keys.length;
    const values = appendStoredKeys(Buffer.from(body), rules, keys);
    return { keys, keysStart, keysEnd: keys.length, ...values };
  });
  const arrays = keyArrays(index.keys.length, filled).map((array) => sql`${array}::bytea[]`);
  const columns = index.keys.map(keyColumn);
  if (index.unique) {
    arrays.push(sql`${filled.map(({ uniques }) => uniques?.[0] ?? null)}::text[]`);
    columns.push(uniqueColumn(index));
  }
  if (isSearchIndex(index)) {
    arrays.push(sql`${filled.map(({ searches }) => searches?.[0] ?? null)}::text[]`);
    columns.push(searchColumn(index));
  }
  const each = (part: (column: Sql) => Sql, separator: string) => join(columns.map(part), separator);
  return sql`update ${table} t set ${each((column) => sql`${column} = v.${column}`, ', ')}
    from unnest(${batch.map(({ id }) => id)}::text[], ${batch.map(({ version }) => version.toString())}::int8[], ${join(arrays, ', ')})
         as v(id, version, ${join(columns, ', ')})
    where t.id = v.id and t.version = v.version
      and (${each((column) => sql`t.${column} is distinct from v.${column}`, ' or ')})`;
}
