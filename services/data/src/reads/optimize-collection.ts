import { row, rows, type Pool } from '@granary/shared/postgres/pool';
import { sql } from '@granary/shared/postgres/sql';
import { requireCollection, type CollectionRef } from '../catalog/collection';
import type { QueryShape } from '../query/execute/slow-queries';
import { collectionIdentity } from '../query/plan/relation';
import type { ReadContext } from './read-context';

/** Shapes of queries in an answer, at most. */
const shapesMax = 20;
/** From this number of documents on, a missing index is worth what it costs writes. */
const documentsMin = 1_000n;

/**
 * Scans of an index that no query uses, at most: Postgres may look up ids of a write in any index while a table is new.
 */
const unusedScansMax = 10n;

interface IndexUseRow {
  name: string;
  scans: bigint;
  last_at: Date | null;
  size_bytes: bigint;
}

/**
 * Returns advice on making the reads of a collection cheaper: JSON text of indexes that its queries miss, indexes that
 * reads hardly use, and the shapes of queries that took Postgres longest. Throws APP_NOT_FOUND, COLLECTION_NOT_FOUND.
 */
export async function optimizeCollection(
  db: ReadContext,
  { appId, collection: name }: { appId: string; collection: string },
): Promise<Buffer> {
  const collection = await requireCollection(db.pool, appId, name);
  const shapes = db.slowQueries.shapesOf(collectionIdentity(collection)).slice(0, shapesMax);
  const uses = await indexUses(db.pool, collection);
  const unused = uses.filter(({ name: used, scans }) => scans <= unusedScansMax && !isUnique(collection, used));
  const count = collection.rowCount;
  const suggested = count < documentsMin ? [] : suggestedIndexes(collection, shapes);
  return Buffer.from(
    JSON.stringify({
      collection: name,
      document_count: Number(count),
      // These three and slow_queries are what published clients read.
      missing_indexes: suggested.map(({ fields }) => fields.join(',')),
      unused_indexes: unused.map(({ name: index }) => index),
      recommendations: [...suggested.map(creationText), ...unused.map(deletionText)],
      suggested_indexes: suggested,
      indexes: uses.map(({ name: index, scans, last_at: lastAt, size_bytes: size }) => ({
        name: index,
        scans: Number(scans),
        last_used_at: lastAt?.toISOString() ?? null,
        size_bytes: Number(size),
      })),
      index_scans_since: await statisticsSince(db.pool),
      slow_queries: shapes.map(shapeJson),
      slow_queries_since: db.slowQueries.since.toISOString(),
    }),
  );
}

const isUnique = (collection: CollectionRef, name: string): boolean =>
  collection.indexes.some((index) => index.name === name && index.unique);

const shapeJson = ({ filter, sort, count, totalMs, maxMs, lastAt, advisedFields }: QueryShape) => ({
  filter,
  sort,
  count,
  total_ms: rounded(totalMs),
  mean_ms: rounded(totalMs / count),
  max_ms: rounded(maxMs),
  last_at: lastAt.toISOString(),
  missing_index: advisedFields.length === 0 ? null : advisedFields,
});

const rounded = (ms: number): number => Math.round(ms * 100) / 100;

interface SuggestedIndex {
  fields: readonly string[];
  index_type: 'btree' | 'composite';
  queries: number;
  total_ms: number;
}

const creationText = ({ fields, index_type: type, queries, total_ms: ms }: SuggestedIndex): string =>
  `Create a ${type} index over ${fields.join(', ')}: it would have served ${queries} queries that took ${ms} ms`;

const deletionText = ({ name, scans, size_bytes: size }: IndexUseRow): string =>
  `Delete the index ${name} if nothing needs it: it was read ${scans} times and takes ${size} bytes`;

/** One for each list of fields that queries miss and no index has by now, the one that would save most first. */
function suggestedIndexes(collection: CollectionRef, shapes: readonly QueryShape[]): SuggestedIndex[] {
  const missing = new Map<string, { fields: readonly string[]; queries: number; total_ms: number }>();
  const indexedFields = new Set(collection.indexes.map(({ fields }) => JSON.stringify(fields)));
  for (const { advisedFields: fields, count, totalMs } of shapes) {
    const key = JSON.stringify(fields);
    if (fields.length === 0 || indexedFields.has(key)) continue;
    const suggestion = missing.get(key) ?? { fields, queries: 0, total_ms: 0 };
    missing.set(key, { fields, queries: suggestion.queries + count, total_ms: rounded(suggestion.total_ms + totalMs) });
  }
  return [...missing.values()].map(({ fields, ...saved }) => ({
    fields,
    index_type: fields.length === 1 ? 'btree' : 'composite',
    ...saved,
  }));
}

/** How often each ready index was read. Postgres adds what a connection read within a minute. */
function indexUses(pool: Pool, collection: CollectionRef): Promise<IndexUseRow[]> {
  return rows<IndexUseRow>(
    pool,
    sql`select i.name, coalesce(sum(s.idx_scan), 0)::int8 as scans, max(s.last_idx_scan) as last_at,
               coalesce(sum(pg_relation_size(s.indexrelid)), 0)::int8 as size_bytes
        from document_index i
        left join pg_stat_all_indexes s on s.indexrelid in (
          to_regclass('a_' || i.app_number || '.i_' || i.number), to_regclass('a_' || i.app_number || '.n_' || i.number))
        where i.collection_number = ${collection.number} and i.status = 'ready'
        group by i.number, i.name order by i.number`,
  );
}

/** Since when Postgres has counted; null: since each index was made. */
async function statisticsSince(pool: Pool): Promise<string | null> {
  const statistics = await row<{ since: Date | null }>(
    pool,
    sql`select stats_reset as since from pg_stat_database where datname = current_database()`,
  );
  return statistics?.since?.toISOString() ?? null;
}
