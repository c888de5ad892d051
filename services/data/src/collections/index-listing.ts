import { message } from '@granary/shared/rpc/types';
import { rows } from '@granary/shared/postgres/pool';
import { empty, sql, type Sql } from '@granary/shared/postgres/sql';
import type { Index } from '@granary/shared/gen/granary/data/v1/Index';
import type { ListIndexesRequest } from '@granary/shared/gen/granary/data/v1/ListIndexesRequest';
import type { ListIndexesResponse } from '@granary/shared/gen/granary/data/v1/ListIndexesResponse';
import { requireCollection } from '../catalog/collection';
import { storedPrice } from '../catalog/read-price';
import { listPage } from '@granary/shared/postgres/listing';
import { findApp } from '../catalog/app';
import type { PoolContext } from '../postgres/databases';

export interface IndexRow {
  name: string;
  collection: string;
  field_name: string;
  fields: string[] | null;
  index_type: string;
  language: string | null;
  price_config_text: string | null;
  read_price_config_text: string | null;
  is_unique: boolean;
  status: string;
  error: string | null;
  size_bytes: bigint;
  entry_count: bigint;
  created_at: Date;
}

export function selectIndexes(where: Sql): Sql {
  // The sizes come from the catalog of Postgres, under names that are made from our numbers.
  return sql`select i.name, c.name as collection, i.field_name, i.fields, i.index_type, i.language, i.price_config_text, i.read_price_config_text,
      i.is_unique, i.status, i.error, i.created_at,
      coalesce(pg_relation_size(to_regclass('a_' || i.app_number || '.i_' || i.number)), 0)
        + coalesce(pg_relation_size(to_regclass('a_' || i.app_number || '.n_' || i.number)), 0)
        + coalesce(pg_relation_size(to_regclass('a_' || i.app_number || '.q_' || i.number)), 0) as size_bytes,
      greatest(0, coalesce((select reltuples from pg_class where oid = to_regclass('a_' || i.app_number || '.i_' || i.number)), 0))::int8 as entry_count
    from document_index i join collection c on c.number = i.collection_number
    where c.deleted_at is null and ${where} order by c.name, i.number`;
}

export function toIndex(index: IndexRow): Index {
  return message<Index>({
    name: index.name,
    collection: index.collection,
    fieldName: index.field_name,
    fields: index.fields ?? [],
    indexType: index.index_type,
    language: index.language ?? undefined,
    priceConfig: storedPrice(index.price_config_text),
    readPriceConfig: storedPrice(index.read_price_config_text),
    unique: index.is_unique,
    status: index.status,
    error: index.error ?? undefined,
    sizeBytes: index.size_bytes.toString(),
    entryCount: index.entry_count.toString(),
    createdAt: index.created_at.toISOString(),
  });
}

/** A page of the indexes of an app, or of one collection of it. Throws INVALID_CURSOR. */
export async function listIndexes({ pool }: PoolContext, request: ListIndexesRequest): Promise<ListIndexesResponse> {
  const { appId, collection } = request;
  const app = await findApp(pool, appId);
  const only =
    collection === '' ? empty : sql` and c.number = ${(await requireCollection(pool, appId, collection)).number}`;
  // Sizes are read from the files of Postgres, so only for the entries of the page.
  const source = {
    columns: sql`i.number, c.name as collection`,
    from: sql`document_index i join collection c on c.number = i.collection_number
      where c.deleted_at is null and i.app_number = ${app.number}${only}`,
    key: [
      { column: sql`c.name`, type: 'text' as const },
      { column: sql`i.number`, type: 'number' as const },
    ],
    bytes: sql`6 * (octet_length(i.name) + octet_length(i.field_name)
      + coalesce(octet_length(array_to_string(i.fields, ',')), 0)) + coalesce(octet_length(i.error), 0)
      + coalesce(octet_length(i.price_config_text), 0) + coalesce(octet_length(i.read_price_config_text), 0)`,
    keyOf: ({ collection, number }: ListedIndex) => [collection, number],
  };
  const { entries, nextCursor } = await listPage<ListedIndex>(pool, source, request);
  const indexes = await rows<IndexRow>(
    pool,
    selectIndexes(sql`i.number = any(${entries.map(({ number }) => number)})`),
  );
  return { indexes: indexes.map(toIndex), nextCursor };
}

interface ListedIndex {
  number: bigint;
  collection: string;
}
