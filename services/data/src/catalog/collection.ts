import { notFound } from '@granary/shared/errors';
import { rows, type Queryable } from '@granary/shared/postgres/pool';
import { sql } from '@granary/shared/postgres/sql';
import { findApp, type App } from './app';
import { collectionState } from './collection-state';
import { readEncryptedFields, type EncryptedFields } from './encrypted-fields';
import { toLiveView, type LiveView, type LiveViewRow } from './live-view';
import { collectionReadPrices, type ReadPrice } from './read-price';
import { parseSchema, type Schema } from './schema';
import {
  toIndexDefinition,
  toIndexedField,
  type FieldRow,
  type IndexDefinition,
  type IndexRow,
  type IndexedField,
} from './index-definition';

export const COLLECTION_NOT_FOUND = 'COLLECTION_NOT_FOUND';

/**
 * A collection as it was looked up under the app of the caller. Every statement on documents is built from it: there is
 * no other way to the name of a table, so no app can reach the tables of another.
 */
export interface CollectionRef {
  appNumber: bigint;
  appId: string;
  number: bigint;
  name: string;
  namespace: string | null;
  readAccess: 'public' | 'private';
  retentionDays: number | null;
  schema: Schema | undefined;
  /** The fields that indexes are over, for writers. */
  fields: IndexedField[];
  indexes: IndexDefinition[];
  /** The fields that are stored encrypted; undefined: none. */
  encrypted: EncryptedFields | undefined;
  /** The prices of reads for callers without a key that has Read; undefined: none. */
  readPrices: readonly ReadPrice[] | undefined;
  /** Whether writes by callers without a key that has Admin cost something. */
  hasWritePricing: boolean;
  /** The live views of its documents that are whole: whoever changes its documents changes their rows. */
  liveViews: LiveView[];
  rowCount: bigint;
  deletedCount: bigint;
  versionCount: bigint;
  sizeBytes: bigint;
  /** The revision of the app's catalog that this shows. */
  revision: bigint;
  /** The state of its documents when its counters were read, see collectionState(). */
  state: string;
}

interface CollectionRow {
  number: bigint;
  name: string;
  namespace: string | null;
  read_access: 'public' | 'private';
  retention_days: number | null;
  schema_text: string | null;
  row_count: bigint;
  deleted_count: bigint;
  version_count: bigint;
  size_bytes: bigint;
  revision: bigint;
  state: string;
  read_price_config_text: string | null;
  write_pricing: boolean;
  fields: string;
  indexes: string;
  live_views: string;
  encrypted: string | null;
}

/** The callers that may read: everybody, or those with a key that has Read. */
export type ReadAccess = 'public' | 'private';

/** Whether anybody may read a collection, without a key and without a payment. */
export const isFreeForAll = ({ readAccess, readPrices }: Pick<CollectionRef, 'readAccess' | 'readPrices'>): boolean =>
  readAccess === 'public' && !readPrices;

/** A collection by name, undefined when there is none. One statement. */
export async function findCollection(db: Queryable, app: App, name: string): Promise<CollectionRef | undefined> {
  return (await findCollections(db, app, [name]))[0];
}

/** A collection that must exist. Throws APP_NOT_FOUND, COLLECTION_NOT_FOUND. */
export async function requireCollection(db: Queryable, appId: string, name: string): Promise<CollectionRef> {
  const collection = await findCollection(db, await findApp(db, appId), name);
  if (!collection) throw notFound(COLLECTION_NOT_FOUND, `There is no collection ${name}`);
  return collection;
}

/** Finds the named collections in one statement, and leaves out names that no collection has. */
export async function findCollections(db: Queryable, app: App, names: readonly string[]): Promise<CollectionRef[]> {
  const collections = await rows<CollectionRow>(
    db,
    sql`select c.number, c.name, c.namespace, c.read_access, c.retention_days, c.schema_text,
               c.row_count, c.deleted_count, c.version_count, c.size_bytes, c.read_price_config_text, c.write_pricing,
               (select h.catalog_revision from head h where h.app_number = c.app_number) as revision,
               ${collectionState(sql`c`)} as state,
               coalesce((select json_agg(json_build_object('number', f.number::text, 'path', f.path, 'is_date', f.is_date)
                          order by f.number)
                         from indexed_field f where f.collection_number = c.number), '[]')::text as fields,
               coalesce((select json_agg(json_build_object('number', i.number::text, 'name', i.name,
                          'field_name', i.field_name, 'fields', i.fields, 'index_type', i.index_type, 'language', i.language, 'is_unique', i.is_unique,
                          'status', i.status, 'field_numbers', i.field_numbers::text[], 'read_price', i.read_price_config_text) order by i.number)
                         from document_index i where i.collection_number = c.number), '[]')::text as indexes,
               coalesce((select json_agg(json_build_object('number', v.number::text, 'table_number', v.table_number::text,
                          'query_text', v.query_text, 'layout_text', v.layout_text, 'sources', v.source_collections, 'keeps_changes', v.keeps_changes,
                          'source_numbers', (select json_object_agg(s.name, s.number::text) from collection s
                            where s.app_number = v.app_number and s.name = any(v.source_collections) and s.deleted_at is null))
                          order by v.number)
                         from view v where v.app_number = c.app_number and v.refresh_mode = 'live'
                           and v.table_number is not null and c.name = any(v.source_collections)), '[]')::text as live_views,
               (select json_build_object('names', json_agg(e.path order by e.path), 'keys',
                         (select json_agg(json_build_object('version', k.version, 'root_key_id', k.root_key_id,
                            'wrapped', encode(k.wrapped, 'hex')) order by k.version)
                          from data_key k where k.app_number = c.app_number))
                from encrypted_field e where e.collection_number = c.number having count(*) > 0)::text as encrypted
        from collection c
        where c.app_number = ${app.number} and c.name = any(${names}) and c.deleted_at is null`,
  );
  const refs: CollectionRef[] = [];
  for (const collection of collections) refs.push(await toCollectionRef(app, collection));
  return refs;
}

async function toCollectionRef(app: App, collection: CollectionRow): Promise<CollectionRef> {
  const schema = collection.schema_text === null ? undefined : parseSchema(collection.schema_text, { isStored: true });
  const fields = (JSON.parse(collection.fields) as FieldRow[]).map(toIndexedField);
  const byNumber = new Map(fields.map((field) => [field.number, field]));
  const indexRows = JSON.parse(collection.indexes) as Array<IndexRow & { read_price: string | null }>;
  const indexes = indexRows.map((index) => toIndexDefinition(index, byNumber));
  return {
    appNumber: app.number,
    appId: app.appId,
    number: collection.number,
    name: collection.name,
    namespace: collection.namespace,
    readAccess: collection.read_access,
    retentionDays: collection.retention_days,
    schema,
    fields,
    indexes,
    encrypted: collection.encrypted === null ? undefined : await readEncryptedFields(app.number, collection.encrypted),
    readPrices: collectionReadPrices(
      collection.read_price_config_text,
      indexes.map(({ fields: names }, index) => ({ fields: names, priceText: indexRows[index]!.read_price })),
    ),
    hasWritePricing: collection.write_pricing,
    liveViews: (JSON.parse(collection.live_views) as LiveViewRow[]).map(toLiveView),
    rowCount: collection.row_count,
    deletedCount: collection.deleted_count,
    versionCount: collection.version_count,
    sizeBytes: collection.size_bytes,
    revision: collection.revision,
    state: collection.state,
  };
}
