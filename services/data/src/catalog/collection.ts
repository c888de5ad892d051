import { notFound } from '@granary/shared/errors';
import { rows, type Queryable } from '@granary/shared/postgres/pool';
import { named, sql, trusted, type Sql } from '@granary/shared/postgres/sql';
import { findApp, type App } from './app';
import { parseSchema, type Schema } from './schema';

export const COLLECTION_NOT_FOUND = 'COLLECTION_NOT_FOUND';

/** How the scalar of an indexed field is keyed, and how text from a URL is read for it; `any` where nothing is declared. */
export type FieldType = 'any' | 'string' | 'number' | 'boolean' | 'date';

/** A field that indexes are over. Writers fill the column of its key, which all its indexes share. */
export interface IndexedField {
  number: bigint;
  name: string;
  path: string[];
  /** Whether RFC 3339 text has the key of its instant. A path may be indexed both ways. */
  isDate: boolean;
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
  /** Whether it has a column for the unique value of its fields together. */
  unique: boolean;
  /** Writers fill the columns of a building index already; readers use ready ones only. */
  status: 'building' | 'ready' | 'failed';
  /** The fields with their columns, in the order of the index. */
  keys: IndexedField[];
}

/** The columns that an index has in the table of documents. */
export interface IndexColumns extends Pick<IndexDefinition, 'number' | 'unique'> {
  keys: ReadonlyArray<Pick<IndexedField, 'number'>>;
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
  /** The fields that indexes are over, for writers. */
  fields: IndexedField[];
  indexes: IndexDefinition[];
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

/** The column with the key of an indexed field (see values/ordered-key.ts). */
export const keyColumn = ({ number }: Pick<IndexedField, 'number'>): Sql => named('f_', number);

/**
 * What a key is in an order that descends and is read backwards: missing and null, whose key is the last, become the
 * first, and so come last there too.
 */
export const descendingKey = (key: Sql): Sql => sql`(case when ${key} = ${emptyKey} then ''::bytea else ${key} end)`;

/** The key of missing and null. */
export const emptyKey = trusted(`'\\xf0'::bytea`);

/** The column that a unique index is on: type and value as text, null where nothing can collide. */
export const uniqueColumn = (index: Pick<IndexDefinition, 'number'>): Sql => named('u_', index.number);

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
  fields: string;
  indexes: string;
}

interface FieldRow {
  number: string;
  path: string;
  is_date: boolean;
}

interface IndexRow {
  number: string;
  name: string;
  field_name: string;
  fields: string[] | null;
  index_type: string;
  is_unique: boolean;
  status: IndexDefinition['status'];
  field_numbers: string[];
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
               coalesce((select json_agg(json_build_object('number', f.number::text, 'path', f.path, 'is_date', f.is_date)
                          order by f.number)
                         from indexed_field f where f.collection_number = c.number), '[]')::text as fields,
               coalesce((select json_agg(json_build_object('number', i.number::text, 'name', i.name,
                          'field_name', i.field_name, 'fields', i.fields, 'index_type', i.index_type, 'is_unique', i.is_unique,
                          'status', i.status, 'field_numbers', i.field_numbers::text[]) order by i.number)
                         from document_index i where i.collection_number = c.number), '[]')::text as indexes
        from collection c
        where c.app_number = ${app.number} and c.name = any(${names}) and c.deleted_at is null`,
  );
  return found.map((collection) => toHandle(app, collection));
}

function toHandle(app: App, found: CollectionRow): CollectionRef {
  const schema = found.schema_text === null ? undefined : parseSchema(found.schema_text);
  const fields = (JSON.parse(found.fields) as FieldRow[]).map(toField);
  const byNumber = new Map(fields.map((field) => [field.number, field]));
  return {
    appNumber: app.number,
    appId: app.appId,
    number: found.number,
    name: found.name,
    namespace: found.namespace,
    readAccess: found.read_access,
    retentionDays: found.retention_days,
    schema,
    fields,
    indexes: (JSON.parse(found.indexes) as IndexRow[]).map((index) => toIndex(index, byNumber)),
    rowCount: found.row_count,
    deletedCount: found.deleted_count,
    versionCount: found.version_count,
    sizeBytes: found.size_bytes,
    revision: found.revision,
  };
}

const toField = ({ number, path, is_date: isDate }: FieldRow): IndexedField => ({
  number: BigInt(number),
  name: path,
  path: path.split('.'),
  isDate,
});

const toIndex = (index: IndexRow, fields: ReadonlyMap<bigint, IndexedField>): IndexDefinition => ({
  number: BigInt(index.number),
  name: index.name,
  fieldName: index.field_name,
  fields: index.fields ?? [index.field_name],
  declaredType: index.index_type,
  unique: index.is_unique,
  status: index.status,
  keys: index.field_numbers.map((number) => fields.get(BigInt(number))!),
});

/** How an index takes a field: as its declared type says, else as the schema does. */
export function indexedType(declaredType: string, schema: Schema | undefined, fieldName: string): FieldType {
  const isTyped = declaredType !== 'btree' && declaredType !== 'composite';
  return isTyped ? (declaredType as FieldType) : schemaType(schema, fieldName);
}

/** The scalar type that the schema declares for a path, `any` for none and for objects and arrays. */
export function schemaType(schema: Schema | undefined, fieldName: string): FieldType {
  const type = schema?.fields.get(fieldName)?.type;
  return type === undefined || type === 'object' || type === 'array' ? 'any' : type;
}
