import { rows, type Queryable } from '@granary/shared/postgres/pool';
import { empty, sql, type Sql } from '@granary/shared/postgres/sql';
import type { CollectionRef } from '../catalog/collection';
import { documentsTable } from '../catalog/table-names';

/** Documents of one batch, at most: fewer where they are large. */
export const batchRows = 1_000;
const batchBytes = 8 * 1024 * 1024;

/** A document as it is stored. */
export interface StoredDocument {
  id: string;
  /** Its JSON text. */
  body: string;
  version: bigint;
}

/**
 * Reads the next documents of a collection by id, deleted ones included: up to 1,000, and no more than fit into 8 MiB,
 * but at least one. The answer is empty where none are left.
 *
 * @param after The id of the last document of the batch before; empty for the first batch.
 * @param which A condition on the columns of the table, which begins with `and`.
 */
export const documentBatch = (
  db: Queryable,
  collection: Pick<CollectionRef, 'appNumber' | 'number'>,
  after: string,
  which: Sql = empty,
): Promise<StoredDocument[]> =>
  rows<StoredDocument>(
    db,
    sql`select id, body, version
        from (select *, sum(octet_length(body)) over (order by id) - octet_length(body) as bytes_before
              from (select id, body, version from ${documentsTable(collection)} where id > ${after} ${which}
                    order by id limit ${batchRows}) batch) sized
        where bytes_before < ${batchBytes} order by id`,
  );
