import { execute, row, type Connection } from '@granary/shared/postgres/pool';
import { conflict, invalid } from '@granary/shared/errors';
import { sql } from '@granary/shared/postgres/sql';
import {
  indexedType,
  isEncryptedIndex,
  isSearchIndex,
  schemaIndexName,
  termPath,
  type IndexColumns,
  type IndexDefinition,
  type IndexedField,
} from '../catalog/index-definition';
import { duplicatesError, findDuplicates } from './duplicates';
import { createPostgresIndexes, dropKeyIndexes } from './postgres-index';
import { dropUnusedFields, ensureFields } from './fields';
import { fillKeys } from './fill-keys';
import { cancelBuilds } from './build-job';
import { documentsTable, searchColumn, uniqueColumn } from '../catalog/table-names';
import { findCollection, type CollectionRef } from '../catalog/collection';
import type { Schema } from '../catalog/schema';
import { isDateType } from '../values/field-type';
import { LIMIT_EXCEEDED } from '../catalog/definition-limit';
import { enqueueJob, type JobOptions } from '../jobs/queue';
import { ALREADY_EXISTS } from '../catalog/names';
import { assertNotEncrypted } from './encrypted-field';

/** Indexes of one collection, at most: each is work for every write. */
export const indexesMax = 64;
/** A table with fewer rows is indexed in the request itself. */
const plainBuildRowsMax = 1_000;
const plainBuildBytesMax = 8 * 1024 * 1024;

interface Table {
  appNumber: bigint;
  number: bigint;
  name: string;
}

/** An index as it is requested. */
export interface NewIndex {
  name: string;
  fieldName: string;
  fields: string[];
  type: string;
  unique: boolean;
  /** The language of a full-text index. */
  language: string | null;
  prices: IndexPrices;
}

type BuildOptions = Pick<JobOptions, 'ticketId' | 'isRequired'>;

/** The JSON texts of the prices of an index, null where there is none. */
export interface IndexPrices {
  priceConfigText: string | null;
  readPriceConfigText: string | null;
}

export const noPrices: IndexPrices = { priceConfigText: null, readPriceConfigText: null };

const isComposite = ({ fields }: Pick<NewIndex, 'fields'>): boolean => fields.length > 1;

/**
 * Adds the columns and the catalog row; writers fill the columns from then on. Returns the ticket of the build, or ''
 * when the index is ready.
 */
export async function addIndex(
  tx: Connection,
  collection: CollectionRef,
  schema: Schema | undefined,
  definition: NewIndex,
  time: Date,
  ticketId: string,
): Promise<string> {
  checkCount(collection.indexes.length);
  if (!isEncryptedIndex({ declaredType: definition.type })) assertNotEncrypted(collection, definition.fields);
  if (collection.indexes.some(({ status }) => status === 'building')) {
    await cancelBuilds(tx, sql`i.collection_number = ${collection.number}`);
  }
  const { number } = await insertIndex(tx, collection, schema, definition, 'building', time);
  const fresh = (await findCollection(tx, { number: collection.appNumber, appId: collection.appId }, collection.name))!;
  const index = fresh.indexes.find((candidate) => candidate.number === number)!;
  if (collection.rowCount >= plainBuildRowsMax || collection.sizeBytes >= plainBuildBytesMax) {
    return enqueueBuild(tx, collection, index, { ticketId });
  }
  await fillKeys(tx, fresh, index, (statement) => execute(tx, statement), undefined);
  const duplicates = index.unique ? await findDuplicates(tx, fresh, index) : [];
  if (duplicates.length > 0) throw duplicatesError(index, duplicates);
  await createPostgresIndexes(tx, fresh, index, false);
  await execute(tx, sql`update document_index set status = 'ready' where number = ${number}`);
  return '';
}

/** Throws LIMIT_EXCEEDED when a collection with so many indexes may not have another. */
function checkCount(indexes: number): void {
  if (indexes >= indexesMax) {
    throw invalid(`A collection may have at most ${indexesMax} indexes`, {}, LIMIT_EXCEEDED);
  }
}

/**
 * The fields of an index with how their keys are made: of a date where its type or the schema says so. Words have no
 * keys; those of an encrypted index are of the blind index.
 */
function keysOf(declaredType: string, fields: readonly string[], schema: Schema | undefined) {
  if (isSearchIndex({ declaredType })) return [];
  if (isEncryptedIndex({ declaredType })) return fields.map((name) => ({ name: termPath(name), isDate: false }));
  return fields.map((name) => ({ name, isDate: isDateType(indexedType(declaredType, schema, name)) }));
}

/** Adds the catalog row, and the columns that the table does not have yet. */
async function insertIndex(
  tx: Connection,
  table: Table,
  schema: Schema | undefined,
  definition: NewIndex,
  status: string,
  time: Date,
): Promise<IndexColumns> {
  const fields = await ensureFields(tx, table, keysOf(definition.type, definition.fields, schema));
  const { number } = (await row<{ number: bigint }>(
    tx,
    sql`insert into document_index (app_number, collection_number, name, field_name, fields, field_numbers, index_type,
          language, price_config_text, read_price_config_text, is_unique, status, created_at)
        values (${table.appNumber}, ${table.number}, ${definition.name}, ${definition.fieldName},
                ${isComposite(definition) ? definition.fields : null}, ${fields}::bigint[], ${definition.type},
                ${definition.language}, ${definition.prices.priceConfigText}, ${definition.prices.readPriceConfigText},
                ${definition.unique}, ${status}, ${time})
        returning number`,
  ))!;
  await addOwnColumns(tx, table, { number, declaredType: definition.type, unique: definition.unique });
  const { unique, language } = definition;
  return { number, unique, language, keys: fields.map((field) => ({ number: field })) };
}

/** Adds the columns that an index does not share with others. */
async function addOwnColumns(
  tx: Connection,
  table: Table,
  index: Pick<IndexDefinition, 'number' | 'unique' | 'declaredType'>,
): Promise<void> {
  const columns = [
    ...(index.unique ? [uniqueColumn(index)] : []),
    ...(isSearchIndex(index) ? [searchColumn(index)] : []),
  ];
  for (const column of columns) {
    await execute(tx, sql`alter table ${documentsTable(table)} add column if not exists ${column} text collate "C"`);
  }
}

/** Gives an index whose build has failed its columns again, to be built anew. The app must be locked. */
export async function restoreColumns(tx: Connection, collection: CollectionRef, index: IndexDefinition): Promise<void> {
  const fields = await ensureFields(tx, collection, keysOf(index.declaredType, index.fields, collection.schema));
  await execute(tx, sql`update document_index set field_numbers = ${fields}::bigint[] where number = ${index.number}`);
  await addOwnColumns(tx, collection, index);
}

/** Adds the indexes that a schema declares and the collection does not have. The app must be locked. */
export async function addSchemaIndexes(
  tx: Connection,
  table: Table | CollectionRef,
  schema: Schema,
  time: Date,
): Promise<void> {
  const existing = 'indexes' in table ? table : undefined;
  let count = existing?.indexes.length ?? 0;
  for (const [fieldName, rule] of schema.fields) {
    if (!rule.index && !rule.unique) continue;
    const name = schemaIndexName(table.name, fieldName);
    const definition = {
      name,
      fieldName,
      fields: [fieldName],
      type: 'btree',
      unique: rule.unique,
      language: null,
      prices: noPrices,
    };
    const same = existing?.indexes.find((index) => index.name === name);
    if (same && (same.fields.join() !== fieldName || (rule.unique && !same.unique))) {
      throw conflict(ALREADY_EXISTS, `An index with the name ${same.name} and another definition already exists`);
    }
    if (same) continue;
    checkCount(count++);
    if (existing) {
      await addIndex(tx, existing, schema, definition, time, '');
    } else {
      const index = await insertIndex(tx, table, schema, definition, 'ready', time);
      await createPostgresIndexes(tx, table, index, false);
    }
  }
}

/**
 * When the schema of a field becomes a date, or stops being one, it has other keys: the indexes that take their type
 * from the schema get the field with those, and are built anew.
 */
export async function rekeyIndexes(tx: Connection, before: CollectionRef, schema: Schema): Promise<void> {
  const changed = before.indexes.flatMap((index) => {
    if (index.status === 'failed') return [];
    const keys = keysOf(index.declaredType, index.fields, schema);
    return keys.every(({ isDate }, at) => isDate === index.keys[at]!.isDate) ? [] : [{ index, keys }];
  });
  await rebuildKeys(tx, before, changed, {});
  await dropUnusedFields(tx, before);
}

/** Has indexes built anew with keys of these fields; writers fill the columns from now on. The app must be locked. */
export async function rebuildKeys(
  tx: Connection,
  collection: CollectionRef,
  changed: ReadonlyArray<{ index: IndexDefinition; keys: ReadonlyArray<Pick<IndexedField, 'name' | 'isDate'>> }>,
  options: BuildOptions,
): Promise<void> {
  if (changed.length === 0) return;
  // Any build of the collection holds the table whose columns change.
  await cancelBuilds(tx, sql`i.collection_number = ${collection.number}`);
  for (const { index, keys } of changed) {
    const fields = await ensureFields(tx, collection, keys);
    await dropKeyIndexes(tx, collection, index);
    await execute(
      tx,
      sql`update document_index set status = 'building', field_numbers = ${fields}::bigint[] where number = ${index.number}`,
    );
    await enqueueBuild(tx, collection, index, options);
  }
}

/** Queues the build of an index. Returns its ticket, or that of a build of the index that is waiting already. */
export function enqueueBuild(
  tx: Connection,
  { appNumber, appId, name }: CollectionRef,
  { number }: Pick<IndexDefinition, 'number'>,
  options: BuildOptions,
): Promise<string> {
  return enqueueJob(
    tx,
    { number: appNumber, appId },
    'index.build',
    { index: number.toString(), app_id: appId, collection: name },
    { ...options, subject: number.toString() },
  );
}
