import { notFound } from '@granary/shared/errors';
import { rows, type Queryable } from '@granary/shared/postgres/pool';
import { named, sql, type Sql } from '@granary/shared/postgres/sql';
import { findApp, type App } from './app';
import { parseSchema, type Schema } from './schema';

export const COLLECTION_NOT_FOUND = 'COLLECTION_NOT_FOUND';

/** How the scalar of an indexed field is keyed and how text from a URL is read for it; `any` where nothing is declared. */
export type FieldType = 'any' | 'string' | 'number' | 'boolean' | 'date';

/** The key column of one field, which writers fill: that of an index of one field, or of one part of a composite. */
export interface IndexDescriptor {
  /** Of the index; the parts of a composite share it. */
  number: bigint;
  /** 1 to 4 in a composite, 0 in an index of one field. */
  part: number;
  name: string;
  fieldName: string;
  path: string[];
  /** The declared type of the index, else the schema's. */
  type: FieldType;
  /** Whether a column for the unique value goes with it. A unique composite has one, with its first part. */
  unique: boolean;
  /** How many descriptors, from this one on, make the unique value together. */
  uniqueParts: number;
  /** Writers fill the key column of a building index already; readers use ready ones only. */
  status: 'building' | 'ready' | 'failed';
}

/** An index as it was asked for: over one field, or over two to four. */
export interface IndexDefinition {
  number: bigint;
  name: string;
  /** What it is listed with; a composite's own fields are in `fields`. */
  fieldName: string;
  fields: string[];
  /** As it was asked for: btree, composite, or a declared type. */
  declaredType: string;
  unique: boolean;
  status: IndexDescriptor['status'];
  keys: IndexDescriptor[];
}

/** The columns that an index has in the table of documents. */
export interface IndexColumns extends Pick<IndexDefinition, 'number' | 'unique'> {
  keys: ReadonlyArray<Pick<IndexDescriptor, 'number' | 'part'>>;
}

/**
 * What is known of a collection, looked up under the app of the caller. Every statement on documents is built from
 * a handle: there is no other way to a table's name, so no app can reach another's.
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
  /** The key columns of all indexes, for writers. */
  indexes: IndexDescriptor[];
  /** The indexes, for readers and listings. */
  definitions: IndexDefinition[];
  rowCount: bigint;
  deletedCount: bigint;
  versionCount: bigint;
  sizeBytes: bigint;
  /** The state of the app's catalog that this handle shows. */
  revision: bigint;
}

/** The latest version of each document: a row has id, body, version, deleted, created_at, updated_at, ordinal, place, and the keys. */
export const documentsTable = (of: Pick<CollectionRef, 'appNumber' | 'number'>): Sql =>
  named('a_', of.appNumber, '.c_', of.number);

/** Older versions, with the same columns but for the keys. */
export const historyTable = (of: Pick<CollectionRef, 'appNumber' | 'number'>): Sql =>
  named('a_', of.appNumber, '.h_', of.number);

/** The rows of a view: pos, id (pos as text that sorts), body. */
export const viewTable = (appNumber: bigint, tableNumber: bigint): Sql => named('a_', appNumber, '.v_', tableNumber);

/** The column with the key of an indexed field: a scalar as jsonb, strings cut at 256 bytes, dates as the number of the instant. */
export const keyColumn = ({ number, part }: Pick<IndexDescriptor, 'number' | 'part'>): Sql =>
  part === 0 ? named('k_', number) : named('k_', number, '_', BigInt(part));

/** The column that a unique index is on: type and value as text, null where nothing can collide. */
export const uniqueColumn = (index: Pick<IndexDescriptor, 'number'>): Sql => named('u_', index.number);

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
  indexes: string;
}

interface IndexRow {
  number: string;
  name: string;
  field_name: string;
  fields: string[] | null;
  index_type: string;
  is_unique: boolean;
  status: IndexDescriptor['status'];
}

/** Who may read: everybody, or callers with a key that has Read. */
export type ReadAccess = 'public' | 'private';

/** The handle of a collection, undefined when there is none of this name. One statement. */
export async function findCollection(db: Queryable, app: App, name: string): Promise<CollectionRef | undefined> {
  return (await findCollections(db, app, [name]))[0];
}

/** The handle of a collection that must exist. Throws APP_NOT_FOUND, COLLECTION_NOT_FOUND. */
export async function requireCollection(db: Queryable, appId: string, name: string): Promise<CollectionRef> {
  const handle = await findCollection(db, await findApp(db, appId), name);
  if (!handle) throw notFound(COLLECTION_NOT_FOUND, `There is no collection ${name}`);
  return handle;
}

/** The handles of those collections that exist. One statement. */
export async function findCollections(db: Queryable, app: App, names: readonly string[]): Promise<CollectionRef[]> {
  const found = await rows<CollectionRow>(
    db,
    sql`select c.number, c.name, c.namespace, c.read_access, c.retention_days, c.schema_text,
               c.row_count, c.deleted_count, c.version_count, c.size_bytes,
               (select h.catalog_revision from head h where h.app_number = c.app_number) as revision,
               coalesce((select json_agg(json_build_object('number', i.number::text, 'name', i.name,
                          'field_name', i.field_name, 'fields', i.fields, 'index_type', i.index_type, 'is_unique', i.is_unique,
                          'status', i.status) order by i.number)
                         from document_index i where i.collection_number = c.number), '[]')::text as indexes
        from collection c
        where c.app_number = ${app.number} and c.name = any(${names}) and c.deleted_at is null`,
  );
  return found.map((collection) => toHandle(app, collection));
}

function toHandle(app: App, found: CollectionRow): CollectionRef {
  const schema = found.schema_text === null ? undefined : parseSchema(found.schema_text);
  const definitions = (JSON.parse(found.indexes) as IndexRow[]).map((index) => toDefinition(index, schema));
  return {
    appNumber: app.number,
    appId: app.appId,
    number: found.number,
    name: found.name,
    namespace: found.namespace,
    readAccess: found.read_access,
    retentionDays: found.retention_days,
    schema,
    indexes: definitions.flatMap(({ keys }) => keys),
    definitions,
    rowCount: found.row_count,
    deletedCount: found.deleted_count,
    versionCount: found.version_count,
    sizeBytes: found.size_bytes,
    revision: found.revision,
  };
}

function toDefinition(index: IndexRow, schema: Schema | undefined): IndexDefinition {
  const { name, status, is_unique: unique, index_type: declaredType } = index;
  const number = BigInt(index.number);
  const fields = index.fields ?? [index.field_name];
  const isTyped = declaredType !== 'btree' && declaredType !== 'composite';
  const keys = fields.map((fieldName, at): IndexDescriptor => ({
    number,
    part: index.fields ? at + 1 : 0,
    name,
    fieldName,
    path: fieldName.split('.'),
    type: isTyped ? (declaredType as FieldType) : schemaType(schema, fieldName),
    unique: unique && at === 0,
    uniqueParts: unique && at === 0 ? fields.length : 0,
    status,
  }));
  return { number, name, fieldName: index.field_name, fields, declaredType, unique, status, keys };
}

/** The scalar type that the schema declares for a path, `any` for none and for objects and arrays. */
export function schemaType(schema: Schema | undefined, fieldName: string): FieldType {
  const type = schema?.fields.get(fieldName)?.type;
  return type === undefined || type === 'object' || type === 'array' ? 'any' : type;
}
