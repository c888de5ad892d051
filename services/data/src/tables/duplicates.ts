import { conflict, type ServiceError } from '@granary/shared/errors';
import { rows, type Queryable } from '@granary/shared/postgres/pool';
import { join, sql } from '@granary/shared/postgres/sql';
import type { CollectionRef } from '../catalog/collection';
import { isEncryptedIndex, UNIQUE_VIOLATION, type IndexDefinition } from '../catalog/index-definition';
import { documentsTable, uniqueColumn } from '../catalog/table-names';

const valuesMax = 10;
const idsMax = 5;
/** Characters of a value that a message shows, and of the whole message. */
const valueLengthMax = 100;
const messageLengthMax = 4_000;

/** A value that several documents have, with the ids of the first of them. */
export interface DuplicateValue {
  /** The text of the value of each field of the index; a long text is cut. */
  values: string[];
  ids: string[];
  count: bigint;
}

/** Up to ten of the values of a unique index that several documents have. Its column must be filled. */
export function findDuplicates(
  db: Queryable,
  table: Pick<CollectionRef, 'appNumber' | 'number'>,
  index: IndexDefinition,
): Promise<DuplicateValue[]> {
  const values = join(
    index.keys.map(({ path }) => sql`left((t.body::jsonb #> ${path}::text[])::text, ${valueLengthMax})`),
    ', ',
  );
  return rows<DuplicateValue>(
    db,
    sql`select array[${values}]::text[] as values, found.ids, found.count
        from (select (array_agg(id order by id))[1:${idsMax}] as ids, count(*) as count from ${documentsTable(table)}
              where ${uniqueColumn(index)} is not null group by ${uniqueColumn(index)} having count(*) > 1
              order by min(id) limit ${valuesMax}) found
        join ${documentsTable(table)} t on t.id = found.ids[1] order by t.id`,
  );
}

/** Why a unique index cannot be built: stored documents have equal values. */
export function duplicatesError(
  { fields, declaredType }: Pick<IndexDefinition, 'fields' | 'declaredType'>,
  duplicates: readonly DuplicateValue[],
): ServiceError {
  const together = fields.length === 1 ? '' : ' together';
  const isEncrypted = isEncryptedIndex({ declaredType });
  const examples = duplicates.map((one) => describe(isEncrypted ? { ...one, values: ['the same value'] } : one));
  const message = `The documents have equal values of ${fields.join(', ')}, so the index cannot be unique: ${examples.join('; ')}`;
  const details = [`must be unique${together}, and stored documents have equal values`, ...examples];
  return conflict(
    UNIQUE_VIOLATION,
    message.slice(0, messageLengthMax),
    Object.fromEntries(fields.map((field) => [field, details])),
  );
}

function describe({ values, ids, count }: DuplicateValue): string {
  const more = count > BigInt(ids.length) ? ` and ${count - BigInt(ids.length)} more` : '';
  return `${values.join(', ')} in ${ids.map((id) => JSON.stringify(id)).join(', ')}${more}`;
}
