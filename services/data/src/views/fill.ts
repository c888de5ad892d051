import { project } from '@granary/shared/json/project';
import { execute, type Connection } from '@granary/shared/postgres/pool';
import { sql, type Sql } from '@granary/shared/postgres/sql';
import type { CollectionRef } from '../catalog/collection';
import { documentsRelation } from '../query/plan/relation';
import type { ViewQuery } from '../query/language/view-query';
import { viewRows } from '../query/sql/aggregate-sql';

/** Bytes of texts that are held at a time where they have to be cut to a selection. */
const batchBytes = 8 * 1024 * 1024;

/**
 * Makes a table and fills it with the rows of a view, as they are for the snapshot of the transaction. Returns how
 * many there are. Texts that are kept whole never leave Postgres.
 */
export async function fillView(
  tx: Connection,
  table: Sql,
  collection: CollectionRef,
  query: ViewQuery,
): Promise<bigint> {
  await execute(
    tx,
    sql`create table ${table} (pos bigint primary key, id text collate "C" not null, body text not null)`,
  );
  const source = documentsRelation(collection, { includeHistory: false, includeDeleted: false });
  const wanted = viewRows(source, query);
  if (query.projection !== 'all') return fillProjected(tx, table, wanted, collection, query);
  const filled = await execute(
    tx,
    sql`insert into ${table} (pos, id, body)
        select n, lpad(n::text, 19, '0'), body from (select row_number() over () as n, p.body from (${wanted}) p) q`,
  );
  return BigInt(filled);
}

async function fillProjected(
  tx: Connection,
  table: Sql,
  wanted: Sql,
  collection: CollectionRef,
  query: ViewQuery,
): Promise<bigint> {
  const averageBytes = Number(collection.sizeBytes / (collection.rowCount + collection.versionCount + 1n)) + 1;
  const batch = Math.min(1_000, Math.max(8, Math.floor(batchBytes / averageBytes)));
  await execute(tx, sql`declare wanted no scroll cursor for ${wanted}`);
  let filled = 0n;
  for (;;) {
    const fetched = await tx.query<{ body: string }>(`fetch ${batch} from wanted`);
    if (fetched.rows.length === 0) break;
    const bodies = fetched.rows.map(({ body }) => project(body, query.projection));
    await execute(
      tx,
      sql`insert into ${table} (pos, id, body)
          select ${filled}::bigint + n, lpad((${filled}::bigint + n)::text, 19, '0'), body
          from unnest(${bodies}::text[]) with ordinality as b (body, n)`,
    );
    filled += BigInt(bodies.length);
  }
  await tx.query('close wanted');
  return filled;
}
