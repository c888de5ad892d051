import { rows, type Queryable } from '@granary/shared/postgres/pool';
import { sql } from '@granary/shared/postgres/sql';
import { textArray } from '@granary/shared/postgres/wire/binary';
import { UNIQUE_VIOLATION } from '../catalog/index-definition';
import { documentsTable } from '../catalog/table-names';
import { takenValues } from '../writes/taken-values';
import type { KeptRefusal } from '../writes/change-write';
import type { ImportBatch, ImportRecord } from './import-batch';

/** A batch of which some accepted records are refused, for their unique values are taken; undefined where none is. */
export async function withoutTakenValues(
  db: Queryable,
  batch: ImportBatch,
  accepted: readonly ImportRecord[],
): Promise<ImportBatch | undefined> {
  const { collection, records } = batch;
  if (!collection) return undefined;
  const documents = accepted.map(({ document }) => document!);
  const refusals = new Map<ImportRecord, KeptRefusal>();
  for (const { place, index } of await takenValues(db, collection, documents)) {
    refusals.set(accepted[place]!, valueIsTaken(index.fields));
  }
  if (refusals.size === 0) return undefined;
  return { ...batch, records: records.map((record) => refused(record, refusals.get(record))) };
}

const refused = (record: ImportRecord, refusal: KeptRefusal | undefined): ImportRecord =>
  refusal ? { ...record, document: undefined, refusal } : record;

const valueIsTaken = (fields: readonly string[]): KeptRefusal => ({
  code: 'ALREADY_EXISTS',
  reason: UNIQUE_VIOLATION,
  message: `Another document has the same value of ${fields.join(', ')}`,
  details: Object.fromEntries(
    fields.map((field) => [field, ['must be unique, and another document has the same value']]),
  ),
});

/** The ids of a batch with which there are documents that are not deleted. */
export async function presentIds(db: Queryable, { collection, records }: ImportBatch): Promise<ReadonlySet<string>> {
  if (!collection) return new Set();
  const ids = textArray(records.flatMap(({ document }) => document?.id ?? []));
  const present = await rows<{ id: string }>(
    db,
    sql`select id from ${documentsTable(collection)} where id = any(${ids}::text[]) and not deleted`,
  );
  return new Set(present.map(({ id }) => id));
}
