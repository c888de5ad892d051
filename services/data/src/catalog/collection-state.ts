import { sql, trusted, type Sql } from '@granary/shared/postgres/sql';

/**
 * Text that changes whenever the documents of a collection may have changed. `row` is its row of the catalog, which
 * every transaction that writes, purges or erases documents updates, so the id of that transaction is there. Size and
 * time distinguish states whose transaction ids a database that was restored from a backup could repeat.
 */
export const collectionState = (row: Sql): Sql =>
  sql`concat_ws('.', ${row}.xmin, ${row}.size_bytes, date_part('epoch', ${row}.last_write_at))`;

/** A statement that reads the state of one collection, as `body`. */
export const readCollectionState = ({ number }: { number: bigint }): Sql =>
  sql`select ${collectionState(sql`c`)} as body from collection c where c.number = ${trusted(number.toString())}`;
